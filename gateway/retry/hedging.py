"""When a second replica is asked beside the first, for a request of which no byte of an answer has come.

Knows times and shares; who is asked, and what becomes of the one that comes second, is not known here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.retry.budget import Budget, BudgetPolicy

_WINDOW_S = 60.0
"""Hedges are few: at 5 % and one request in three seconds there is one a minute."""
_LEARN_EVERY_S = 10.0
_LEAST_SEEN = 20
"""First bytes from which a percentile can be told."""


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """after_s:     how long the first replica has time; None: as long as the `quantile` of the pool's requests takes.

    max_share:   hedges for each answered request.
    max_step_us: requests with a higher predicted hook cost a step are not sent twice.
    """

    after_s: float | None
    quantile: float = 0.95
    max_share: float = 0.05
    max_step_us: float = 0.0


class FirstBytes:
    """How long first bytes take, from a histogram that only grows: a quantile of the last ten to twenty seconds.

    counts: gives how many there were within each of `bounds_s`, rising, and beyond the last.
    """

    def __init__(
        self, bounds_s: Sequence[float], counts: Callable[[], Sequence[int]], clock: Callable[[], float]
    ) -> None:
        self._bounds_s = bounds_s
        self._counts = counts
        self._clock = clock
        self._base = self._next = list(counts())
        self._at_s = clock()
        self._known: dict[float, float | None] = {}

    def quantile_s(self, quantile: float) -> float | None:
        """Seconds within which such a share of them came; None while too few are known, or it is beyond all bounds."""
        now_s = self._clock()
        if now_s - self._at_s >= _LEARN_EVERY_S:
            self._base, self._next = self._next, list(self._counts())
            self._at_s = now_s
            self._known.clear()
        if quantile not in self._known:
            recent = [new - old for new, old in zip(self._counts(), self._base, strict=True)]
            found = quantile_of(self._bounds_s, recent, quantile)
            if found is None:
                return None
            self._known[quantile] = found
        return self._known[quantile]


def quantile_of(bounds_s: Sequence[float], counts: Sequence[int], quantile: float) -> float | None:
    """A quantile of a histogram, as if all of a bucket were spread evenly over it."""
    total = sum(counts)
    if total < _LEAST_SEEN:
        return None
    wanted = quantile * total
    below, low_s = 0, 0.0
    for high_s, count in zip(bounds_s, counts, strict=False):
        if count and below + count >= wanted:
            return low_s + (high_s - low_s) * (wanted - below) / count
        below += count
        low_s = high_s
    return None


class Hedging:
    """The hedges of one pool or rule: how long after the first try, and whether one more is within the share."""

    def __init__(
        self,
        policy: HedgePolicy,
        first_bytes: FirstBytes,
        answered: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self.policy = policy
        self._first_bytes = first_bytes
        self._share = Budget(BudgetPolicy(policy.max_share, 1.0 / _WINDOW_S), answered, clock, window_s=_WINDOW_S)

    def after_s(self) -> float | None:
        """How long a first try has time now; None: it is not known."""
        policy = self.policy
        return self._first_bytes.quantile_s(policy.quantile) if policy.after_s is None else policy.after_s

    def take(self) -> bool:
        """Whether one more hedge is within the share; it is counted if so."""
        return self._share.take()
