"""A balancer put together from filters, scorers and a pick, and the plan that a configuration makes of it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.routing.balance.ask import Ask
from gateway.routing.balance.picks import Best, PowerOfTwo, Weighted
from gateway.routing.balance.prefix_affinity import PrefixMemory
from gateway.routing.balance.stages import Filter, Pick, Scorer
from gateway.routing.replica import Replica


class FilterPlan(Protocol):
    """The settings of a filter: a frozen dataclass."""

    def build(self) -> Filter: ...


class ScorerPlan(Protocol):
    """The settings of a scorer: a frozen dataclass."""

    def build(self) -> Scorer: ...


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What a pipeline is built from. `scores`: scorers with their weights; `pick`: `best`, `p2c` or `weighted`."""

    filters: tuple[FilterPlan, ...] = ()
    scores: tuple[tuple[ScorerPlan, float], ...] = ()
    pick: str = "best"

    def build(self) -> "Pipeline":
        """A pipeline that remembers nothing yet."""
        picks: dict[str, Pick] = {"best": Best(), "p2c": PowerOfTwo(random.Random()), "weighted": Weighted()}
        return Pipeline(
            tuple([each.build() for each in self.filters]),
            tuple([(each.build(), weight) for each, weight in self.scores]),
            picks[self.pick],
        )


class Pipeline:
    """Filter, score, pick. A `Balancer`."""

    __slots__ = ("_filters", "_learners", "_pick", "_scorers")

    def __init__(self, filters: tuple[Filter, ...], scorers: tuple[tuple[Scorer, float], ...], pick: Pick) -> None:
        self._filters = filters
        self._scorers = scorers
        self._pick = pick
        self._learners = [scorer for scorer, _ in scorers if isinstance(scorer, PrefixMemory)]

    def choose(self, ask: Ask, members: tuple[Replica, ...], candidates: Sequence[Replica]) -> Replica:
        """See `Balancer`."""
        for each in self._filters:
            candidates = each.narrow(ask, candidates)
        candidates = self._pick.sample(candidates)
        sums = [0.0] * len(candidates)
        for scorer, weight in self._scorers:
            scores = scorer.score(ask, members, candidates)
            sums = [total + weight * score for total, score in zip(sums, scores, strict=True)]
        return self._pick.pick(candidates, sums)

    def learn(self, ask: Ask, replica: Replica) -> None:
        """See `Balancer`."""
        for learner in self._learners:
            learner.learn(ask, replica)
