"""How long to wait before trying again. Owns the pause; knows nothing of what is tried."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Pauses that double from `first_s` to `longest_s`, each shortened by up to half at random, so that many gateways
    which lost the same server don't come back to it together."""

    first_s: float
    longest_s: float
    random_source: random.Random
    _attempts: int = 0

    def next_pause_s(self) -> float:
        """The next pause, in seconds."""
        # Beyond this exponent it is the longest anyhow, and a float would overflow some day.
        pause_s = min(self.longest_s, self.first_s * 2.0 ** min(self._attempts, 32))
        self._attempts += 1
        return pause_s * self.random_source.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It went well: begin with the first pause again."""
        self._attempts = 0
