"""How long is waited before a request is tried again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackOff:
    """`first_s` before the first retry, `factor` times as long before each further one, `max_s` at most.

    first_s: 0: every retry is at once.
    jitter:  the share of a wait, from 0 to 1, that is left to chance, so that those that failed together do not come
             back together.
    """

    first_s: float = 0.0
    factor: float = 2.0
    max_s: float = 1.0
    jitter: float = 0.5

    def delay_s(self, retry: int, chance: float) -> float:
        """Seconds before the `retry`-th retry, counted from 1. `chance`: a random number from 0 up to 1."""
        if self.first_s <= 0.0:
            return 0.0
        try:
            whole_s = min(self.first_s * self.factor ** (retry - 1), self.max_s)
        except OverflowError:
            whole_s = self.max_s
        return whole_s * (1.0 - self.jitter * chance)
