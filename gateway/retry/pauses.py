"""How long to wait before something is tried again that must work some day: a connection, a watch, a process.

Owns the pause; knows nothing of what is tried. For requests, which may be given up, there is `BackOff` alone.
"""

import random

from gateway.retry.backoff import BackOff


class Pauses:
    """Pauses that double from `first_s` to `longest_s`, each shortened by up to half at random, so that many gateways
    which lost the same server don't come back to it together."""

    def __init__(self, first_s: float, longest_s: float, random_source: random.Random | None = None) -> None:
        self._back_off = BackOff(first_s, max_s=longest_s)
        self._random = random_source or random.Random()
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        self._failures += 1
        return self._back_off.delay_s(self._failures, self._random.random())

    def reset(self) -> None:
        """It went well: begin with the first pause again."""
        self._failures = 0
