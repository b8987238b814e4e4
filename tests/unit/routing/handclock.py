"""Time that passes when a test says so, with the timers that a loop would have."""

import heapq
from collections.abc import Callable


class Clock:
    """Stands until `pass_s`; timers ring on the way."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, int, Timer]] = []
        self.set = 0

    def __call__(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> "Timer":
        self.set += 1
        timer = Timer(callback)
        heapq.heappush(self.timers, (when_s, self.set, timer))
        return timer

    def pass_s(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.timers and self.timers[0][0] <= until_s:
            self.now_s, _, timer = heapq.heappop(self.timers)
            timer.ring()
        self.now_s = until_s


class Timer:
    """What `call_at` gives."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def ring(self) -> None:
        if self._callback is not None:
            self._callback()
