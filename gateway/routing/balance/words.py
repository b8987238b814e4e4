"""The ways of balancing that have a name: each a filter, some scores and a pick that have proved good together."""

from gateway.routing.balance.affinity import GrammarAffinity, SessionAffinity
from gateway.routing.balance.least import Least, engine_load, requests, step_cost
from gateway.routing.balance.pipeline import PipelinePlan, ScorerPlan
from gateway.routing.balance.prefix_affinity import PrefixAffinity
from gateway.routing.balance.zone import ZoneAware

_BESIDE_AFFINITY = 0.1
"""Load decides where affinity has nothing to say, and never against it: that has its own bound."""

LEAST_REQUESTS = PipelinePlan(scores=((Least(requests), 1.0),))
"""By weight. Where all weights are equal, a pool without a plan does the same, quicker."""
ROUND_ROBIN = PipelinePlan()
POWER_OF_TWO = PipelinePlan(scores=((Least(requests), 1.0),), pick="p2c")
LEAST_STEP_COST = PipelinePlan(scores=((Least(step_cost), 1.0), (Least(requests), _BESIDE_AFFINITY)))
ENGINE_LOAD = PipelinePlan(scores=((Least(engine_load), 1.0),), pick="p2c")
WEIGHTED = PipelinePlan(pick="weighted")


def affine(affinity: GrammarAffinity | SessionAffinity | PrefixAffinity) -> PipelinePlan:
    """Affinity first, then the least loaded."""
    scores: tuple[tuple[ScorerPlan, float], ...] = ((affinity, 1.0), (Least(requests), _BESIDE_AFFINITY))
    return PipelinePlan(scores=scores)


def near(zone: ZoneAware) -> PipelinePlan:
    """The gateway's own zone first, the least loaded there."""
    return PipelinePlan(filters=(zone,), scores=LEAST_REQUESTS.scores)
