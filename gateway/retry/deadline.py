"""How long a client will wait, as it says in a header of its request, and what is left of that for the replica."""

import math

_LONGEST_S = 86400.0


class DeadlineHeader:
    """A header with the time that a request may take: in milliseconds if its name ends in `-ms`, else in seconds."""

    def __init__(self, name: str) -> None:
        self.name = name.lower().encode("ascii")
        self._per_s = 1000.0 if self.name.endswith(b"-ms") else 1.0

    def seconds(self, value: bytes) -> float | None:
        """What a client says; None for what is no positive number, which is as good as nothing."""
        try:
            number = float(value)
        except ValueError:
            return None
        if not math.isfinite(number) or number <= 0.0:
            return None
        return min(number / self._per_s, _LONGEST_S)

    def line(self, seconds: float) -> bytes:
        """The header line for the replica, CRLF included. Milliseconds are whole, and nothing is never said."""
        if self._per_s > 1.0:
            return b"%b: %d\r\n" % (self.name, max(1, int(seconds * self._per_s)))
        return b"%b: %.3f\r\n" % (self.name, max(0.001, seconds))
