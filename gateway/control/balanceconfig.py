"""The configuration of balancing: how a pool chooses among its replicas, and what its engines can do.

Each model stands for something in gateway/routing/balance or gateway/routing/capabilities.py, where the reasons are.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from gateway.control.document import Document
from gateway.control.part import Count, Factor, Limit, Part, Seconds
from gateway.control.problem import Problem
from gateway.control.validation import HEADER_PATTERN, custom_error
from gateway.routing.balance import words
from gateway.routing.balance.affinity import BOUND, FLOOR, GrammarAffinity, SessionAffinity
from gateway.routing.balance.balancer import Plan
from gateway.routing.balance.least import Least, cache_usage, engine_load, requests, step_cost
from gateway.routing.balance.pipeline import FilterPlan, PipelinePlan, ScorerPlan
from gateway.routing.balance.prefix_affinity import PrefixAffinity
from gateway.routing.balance.zone import ZoneAware
from gateway.routing.capabilities import Capabilities

if TYPE_CHECKING:
    from gateway.control.config import PoolConfig

Weight = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Header = Annotated[str, StringConstraints(pattern=HEADER_PATTERN)]

_PREFIX = PrefixAffinity()
_ZONE = ZoneAware("")
_OF_ENGINES = frozenset({"engine_load", "cache_usage"})
"""Scores that want the engines to be asked for their load."""


class NothingConfig(Part):
    """Nothing more to say."""


class BoundConfig(Part):
    """How much likes may gather on one replica.

    bound: requests on it, as a factor of the mean of the pool; what is beyond goes to the next replica.
    floor: requests that are never too many.
    """

    bound: Factor = BOUND
    floor: Limit = FLOOR


class GrammarAffinityConfig(BoundConfig):
    """One grammar to one replica, whose cache has it compiled."""

    def plan(self) -> GrammarAffinity:
        """The scorer."""
        return GrammarAffinity(self.bound, self.floor)


class SessionAffinityConfig(BoundConfig):
    """One session to one replica: by a request `header`, or by the `user` of the body (`user`, the default)."""

    header: Header | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        return {} if value == "user" else value

    def plan(self) -> SessionAffinity:
        """The scorer."""
        return SessionAffinity(self.header, self.bound, self.floor)


class PrefixAffinityConfig(BoundConfig):
    """Prompts to the replica that was sent most of their beginning; see `PrefixAffinity`."""

    threshold: Annotated[float, Field(ge=0, le=1)] = _PREFIX.threshold
    block_bytes: Annotated[int, Field(ge=16, le=65536)] = _PREFIX.block_bytes
    most_bytes: Annotated[int, Field(ge=16)] = _PREFIX.most_bytes
    blocks: Count = _PREFIX.blocks

    def plan(self) -> PrefixAffinity:
        """The scorer."""
        return PrefixAffinity(self.threshold, self.block_bytes, self.most_bytes, self.blocks, self.bound, self.floor)


class ZoneConfig(Part):
    """The gateway's own zone first, while its replicas have not more than `bound` times their share of the load."""

    bound: Factor = _ZONE.bound
    floor: Limit = _ZONE.floor

    def plan(self, zone: str) -> ZoneAware:
        """The filter, for a gateway in `zone`."""
        return ZoneAware(zone, self.bound, self.floor)


class FilterConfig(Part):
    """One filter of a pipeline."""

    zone_aware: ZoneConfig

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        return {value: {}} if isinstance(value, str) else value


class _Scored(Part):
    """A number is its weight."""

    weight: Weight = 1.0

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"weight": value} if is_number else value


class ScoredGrammarAffinity(_Scored, GrammarAffinityConfig):
    """`GrammarAffinityConfig` with the weight of its score."""


class ScoredSessionAffinity(_Scored, SessionAffinityConfig):
    """`SessionAffinityConfig` with the weight of its score."""


class ScoredPrefixAffinity(_Scored, PrefixAffinityConfig):
    """`PrefixAffinityConfig` with the weight of its score."""


class ScoreConfig(Part):
    """Scores of a pipeline with their weights: `{least_requests: 1.0}`."""

    least_requests: Weight | None = None
    least_step_cost: Weight | None = None
    engine_load: Weight | None = None
    cache_usage: Weight | None = None
    grammar_affinity: ScoredGrammarAffinity | None = None
    session_affinity: ScoredSessionAffinity | None = None
    prefix_affinity: ScoredPrefixAffinity | None = None

    def plans(self) -> list[tuple[ScorerPlan, float]]:
        """The scorers, each with its weight."""
        amounts = (
            (self.least_requests, requests),
            (self.least_step_cost, step_cost),
            (self.engine_load, engine_load),
            (self.cache_usage, cache_usage),
        )
        found: list[tuple[ScorerPlan, float]] = [
            (Least(amount), weight) for weight, amount in amounts if weight is not None
        ]
        affinities = (self.grammar_affinity, self.session_affinity, self.prefix_affinity)
        return found + [(each.plan(), each.weight) for each in affinities if each is not None]


class BalanceConfig(Part):
    """How a pool chooses among its replicas: a word, a word with its settings, or filters, scores and a pick.

    least_requests:   the fewest in flight, by weight. round_robin: in turn. weighted: in turn, by weight.
    power_of_two:     the less loaded of two that chance names.
    least_step_cost:  the least hook time in a step.
    engine_load:      the same of two by the load that the engines report.
    grammar_affinity, session_affinity, prefix_affinity: likes to their like, with bounded load.
    zone_aware:       the gateway's own zone first.
    filter, score, pick: a pipeline of one's own.
    """

    least_requests: NothingConfig | None = None
    round_robin: NothingConfig | None = None
    power_of_two: NothingConfig | None = None
    least_step_cost: NothingConfig | None = None
    engine_load: NothingConfig | None = None
    weighted: NothingConfig | None = None
    grammar_affinity: GrammarAffinityConfig | None = None
    session_affinity: SessionAffinityConfig | None = None
    prefix_affinity: PrefixAffinityConfig | None = None
    zone_aware: ZoneConfig | None = None
    filter: list[FilterConfig] = Field(default_factory=list)
    score: list[ScoreConfig] = Field(default_factory=list)
    pick: Literal["best", "p2c", "weighted"] = "best"

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if isinstance(value, str):
            if value not in _WORDS:
                raise custom_error(f"one of {', '.join(sorted(_WORDS))}, or a mapping with filter, score and pick")
            return {value: {}}
        return value

    @model_validator(mode="after")
    def _one_way(self) -> "BalanceConfig":
        named = self.model_fields_set & _WORDS
        if len(named) > 1 or (named and self.model_fields_set - _WORDS):
            raise custom_error("either one word, or filter, score and pick")
        return self

    @property
    def label(self) -> str:
        """Its word, or `pipeline` for one of one's own."""
        named = self.model_fields_set & _WORDS
        return next(iter(named)) if named else "pipeline" if self.model_fields_set else "least_requests"

    @property
    def wants_loads(self) -> bool:
        """Whether the engines are to be asked for their load."""
        scored = any(score.model_fields_set & _OF_ENGINES for score in self.score)
        return self.engine_load is not None or scored

    @property
    def wants_zone(self) -> bool:
        """Whether the gateway has to know its own zone."""
        return self.zone_aware is not None or bool(self.filter)

    def plan(self, zone: str, *, weighted: bool) -> Plan | None:
        """The balancer's plan; None where the least loaded takes it and all weights are equal (`weighted` false).

        zone: the gateway's own.
        """
        if self.zone_aware is not None:
            return words.near(self.zone_aware.plan(zone))
        for affinity in (self.grammar_affinity, self.session_affinity, self.prefix_affinity):
            if affinity is not None:
                return words.affine(affinity.plan())
        named = next(iter(self.model_fields_set & set(_PLANS)), None)
        if named is not None:
            return _PLANS[named]
        if self.model_fields_set - {"least_requests"}:
            filters: tuple[FilterPlan, ...] = tuple([each.zone_aware.plan(zone) for each in self.filter])
            scores = [pair for each in self.score for pair in each.plans()]
            return PipelinePlan(filters, tuple(scores), self.pick)
        return words.LEAST_REQUESTS if weighted else None


_PLANS = {
    "round_robin": words.ROUND_ROBIN,
    "power_of_two": words.POWER_OF_TWO,
    "least_step_cost": words.LEAST_STEP_COST,
    "engine_load": words.ENGINE_LOAD,
    "weighted": words.WEIGHTED,
}
_WORDS = frozenset(BalanceConfig.model_fields) - {"filter", "score", "pick"}


class CapabilitiesConfig(Part):
    """What the engines of a pool can take; the rest goes to the next pool that can, or gets a 400 or 404.

    grammar:                  they constrain their output.
    grammar_with_speculative: they do so beside speculative decoding; asked for where they decode so (`from_server`).
    logprobs, prompt_logprobs, max_top_logprobs: what they give of those.
    models, lora:             the names that they serve; any, where none are given.
    from_server:              read the models, the adapters and whether they decode speculatively from `/server_info`.
    """

    grammar: bool = True
    grammar_with_speculative: bool = False
    logprobs: bool = True
    prompt_logprobs: bool = True
    max_top_logprobs: Limit | None = None
    models: list[str] | None = None
    lora: list[str] = Field(default_factory=list)
    from_server: bool = False

    def capabilities(self) -> Capabilities | None:
        """As they are configured; None: everything, and that will not change."""
        found = Capabilities(
            self.grammar,
            self.logprobs,
            self.prompt_logprobs,
            self.max_top_logprobs,
            None if self.models is None else frozenset(self.models),
            frozenset(self.lora),
        )
        return None if found == Capabilities() and not self.from_server else found


class LoadsConfig(Part):
    """How often engines are asked for their load, and how long what they said counts."""

    interval_s: Seconds = 1
    stale_s: Seconds = 5


def check_balance(pools: Mapping[str, "PoolConfig"], zone: str, document: Document) -> list[Problem]:
    """What the balancing of pools demands of the rest of the configuration."""
    problems = []
    for name, pool in pools.items():
        if pool.balance.wants_zone and not zone:
            hint = "say where this gateway stands: zone: NAME at the top of the file"
            location = ("pools", name, "balance")
            problems.append(document.problem(location, "a gateway that knows its own zone", "no zone", hint))
        if pool.balance.wants_loads and pool.engine == "other":
            location = ("pools", name, "balance")
            expected = "engines that say their load: engine: sglang, or vllm"
            problems.append(document.problem(location, expected, "engine: other"))
        if pool.grammar_backend_version is not None and pool.grammar_backend is None:
            location = ("pools", name, "grammar_backend_version")
            problems.append(document.problem(location, "a version beside a grammar_backend", "the version alone"))
    return problems
