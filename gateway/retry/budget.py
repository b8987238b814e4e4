"""How many retries there may be in all: a share of the traffic, so that an outage is not made worse by them.

Theory of operation. A bucket of tokens; a retry takes one. Each answered request adds `ratio`, each second `min_per_s`,
and what is in the bucket ages: of what was there `WINDOW_S` ago nothing is left, so a quiet hour saves up nothing. So
within any time there are at most `ratio` retries for each request answered in it, `min_per_s` for each second, and
those that were in the bucket before. Requests are not told of one by one, for which each of them would pay: their count
is read when a retry asks.
"""

from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class BudgetPolicy:
    """ratio: retries for each answered request. min_per_s: retries a second that are allowed without any."""

    ratio: float = 0.2
    min_per_s: float = 3.0


class Budget:
    """One bucket.

    answered: gives the requests answered so far, a number that only grows. clock: seconds.
    window_s: for how long what was not used can be.
    """

    def __init__(
        self,
        policy: BudgetPolicy,
        answered: Callable[[], int],
        clock: Callable[[], float],
        *,
        window_s: float = WINDOW_S,
    ) -> None:
        self._policy = policy
        self._answered = answered
        self._clock = clock
        self._window_s = window_s
        self._tokens = policy.min_per_s * window_s
        self._seen = answered()
        self._at_s = clock()

    def take(self) -> bool:
        """Whether one more retry is within the budget; it is counted if so."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    @property
    def left(self) -> float:
        """Retries that there may be now."""
        self._fill()
        return self._tokens

    def _fill(self) -> None:
        now_s, seen = self._clock(), self._answered()
        passed_s = max(0.0, now_s - self._at_s)
        fresh = min(1.0, self._window_s / passed_s) if passed_s else 1.0
        aged = self._tokens * max(0.0, 1.0 - passed_s / self._window_s)
        earned = self._policy.ratio * max(0, seen - self._seen) * fresh
        self._tokens = aged + earned + self._policy.min_per_s * min(passed_s, self._window_s)
        self._seen, self._at_s = seen, now_s
