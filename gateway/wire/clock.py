"""The loop's time, read once for each event and good until the next: five readings per request would cost as much as
looking up its head."""

from collections.abc import Callable


class Clock:
    """Time of the event that is being handled.

    at: seconds of the loop's clock when `read` was last called. Whoever is called by the loop calls `read` first.
    """

    __slots__ = ("_time", "at")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.at: float = time()

    def read(self) -> float:
        """The time now, which is also `at` from here on."""
        now = self.at = self._time()
        return now
