"""How long to wait after a failure: longer each time, and never the same for all."""

import random


class BackOff:
    """Seconds to wait, from `first_s` doubling up to `most_s`, each less up to half of it by chance."""

    def __init__(self, first_s: float, most_s: float, random_source: random.Random | None = None) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._random = random_source or random.Random()
        self._failures = 0

    def next_s(self) -> float:
        """One more failure."""
        wait_s = min(self._first_s * 2.0 ** min(self._failures, 30), self._most_s)
        self._failures += 1
        return wait_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It works again."""
        self._failures = 0
