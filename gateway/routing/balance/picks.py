"""How one of the scored candidates is taken. Ties take turns, so that equals share what comes."""

import random
from collections.abc import Sequence

from gateway.routing.replica import Replica

_EQUAL = 1e-9
"""Scores that differ by less are equal: they are sums of products."""


class Best:
    """The highest score. Without scores: round robin."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = -1

    def sample(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """All."""
        return candidates

    def pick(self, candidates: Sequence[Replica], scores: Sequence[float]) -> Replica:
        """The best one; of several, the next after the one taken last."""
        enough = max(scores) - _EQUAL
        best = [each for each, score in zip(candidates, scores, strict=True) if score >= enough]
        last = self._last
        taken = min(best, key=lambda each: (each.at <= last, each.at))
        self._last = taken.at
        return taken


class PowerOfTwo:
    """The better of two that chance names (Mitzenmacher 2001): nobody herds to the one that was best a moment ago."""

    __slots__ = ("_random",)

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def sample(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """Two, in an order of chance."""
        return candidates if len(candidates) < 2 else self._random.sample(candidates, 2)

    def pick(self, candidates: Sequence[Replica], scores: Sequence[float]) -> Replica:
        """The better one."""
        return candidates[scores.index(max(scores))]


class Weighted:
    """Turns in proportion to weight and score, spread evenly (nginx's smooth weighted round robin).

    Each candidate gains its share each time, and the one with the most pays what all have gained.
    """

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit: dict[Replica, float] = {}

    def sample(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """All."""
        return candidates

    def pick(self, candidates: Sequence[Replica], scores: Sequence[float]) -> Replica:
        """The one with the most credit; without scores, or with none above zero, weights alone count."""
        scored = max(scores) > 0.0
        before, credit = self._credit, {}
        gained = 0.0
        for each, score in zip(candidates, scores, strict=True):
            share = each.weight * score if scored else each.weight
            credit[each] = before.get(each, 0.0) + share
            gained += share
        taken = max(candidates, key=credit.__getitem__)
        credit[taken] -= gained
        self._credit = credit
        return taken
