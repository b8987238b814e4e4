"""A token bucket that may be spent into debt: what something costs is often known only afterwards."""

_LONGEST_DEBT_S = 60.0
"""So much of its rate a bucket owes at most: a mistaken charge must not lock its tenant out for hours."""


class Bucket:
    """Fills by `rate` a second up to `burst`; begins full. Times are clock readings in seconds."""

    __slots__ = ("_at_s", "_least", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        """Raises ValueError unless both are positive."""
        if not (rate > 0.0 and burst > 0.0):
            raise ValueError(f"rate and burst must be positive, not {rate:g} and {burst:g}")
        self.rate = rate
        self.burst = burst
        self._level = burst
        self._least = -rate * _LONGEST_DEBT_S
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """What is in it; negative: what is owed."""
        if now_s > self._at_s:
            self._level = min(self.burst, self._level + (now_s - self._at_s) * self.rate)
            self._at_s = now_s
        return self._level

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` may be taken: 0 if it may now.

        What is more than the bucket holds may be taken when it is full: else it never could.
        """
        return max(0.0, (min(amount, self.burst) - self.level(now_s)) / self.rate)

    def spend(self, amount: float, now_s: float) -> None:
        """Take `amount` whatever is in it; a negative one is given back."""
        self._level = max(self._least, min(self.burst, self.level(now_s) - amount))

    def full_in_s(self, now_s: float) -> float:
        """Seconds until it is full."""
        return (self.burst - self.level(now_s)) / self.rate

    def reconfigure(self, rate: float, burst: float, now_s: float) -> None:
        """Change the limit; what is owed stays owed, and what is in it stays, up to the new burst."""
        level = self.level(now_s)
        self.rate, self.burst = rate, burst
        self._least = -rate * _LONGEST_DEBT_S
        self._level = max(self._least, min(burst, level))
