"""How fast a queue empties, as observed: what a client is told about when to come back rests on it."""

import math

_MEMORY_S = 10.0
"""Time constant: what happened so long ago counts for 37 %."""


class DrainRate:
    """Leaves per second, older ones counting less and less. Times are seconds of the caller's clock."""

    __slots__ = ("_began_s", "_last_s", "_weight")

    def __init__(self) -> None:
        self._weight = 0.0
        self._last_s = self._began_s = -math.inf

    def count(self, now_s: float) -> None:
        """One was admitted from the queue."""
        if not self._weight:
            self._began_s = self._last_s = now_s
        self._weight = self._weight * math.exp((self._last_s - now_s) / _MEMORY_S) + 1.0
        self._last_s = now_s

    def per_s(self, now_s: float) -> float:
        """The rate now; 0.0 where nothing was observed."""
        if not self._weight:
            return 0.0
        # Over a time shorter than the memory, the weight is that of the time observed, a second at the least.
        observed_s = max(now_s - self._began_s, 1.0)
        span_s = _MEMORY_S * -math.expm1(-observed_s / _MEMORY_S)
        return self._weight * math.exp((self._last_s - now_s) / _MEMORY_S) / span_s
