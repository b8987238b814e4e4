"""Many times to be called back at, and one timer for all of them.

Most alarms are cancelled long before their time (a deadline, a hedge), so cancelling is one assignment, and what was
cancelled is thrown away when the heap holds more of it than of the rest.
"""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

_EARLY_S = 0.001
"""uvloop's timers have milliseconds, and may be half of one early."""
_FEW = 64


class Timer(Protocol):
    """What `call_at` gives; that of asyncio's loop fits."""

    def cancel(self) -> None: ...


class Alarm:
    """One of them. It lets go of its callback when it is cancelled: that may hold a whole request."""

    __slots__ = ("_alarms", "_callback", "at_s")

    def __init__(self, alarms: "Alarms", at_s: float, callback: Callable[[], None]) -> None:
        self._alarms = alarms
        self.at_s = at_s
        self._callback: Callable[[], None] | None = callback

    @property
    def waits(self) -> bool:
        """It has neither rung nor been cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """It is not to ring; harmless if it has."""
        if self._callback is not None:
            self._callback = None
            self._alarms.cancelled()

    def ring(self) -> None:
        """Call back."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Alarms:
    """See the module. All methods belong to one event loop.

    clock: seconds. call_at(when, callback): calls back when the clock stands there (`loop.call_at`).
    failed: told of what a callback raises; the others ring all the same.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
        failed: Callable[[Exception], None],
    ) -> None:
        self._clock = clock
        self._call_at = call_at
        self._failed = failed
        self._heap: list[tuple[float, int, Alarm]] = []
        self._numbers = 0
        self._cancelled = 0
        self._timer: Timer | None = None
        self._timer_s = math.inf

    def __len__(self) -> int:
        """How many wait."""
        return len(self._heap) - self._cancelled

    def set(self, at_s: float, callback: Callable[[], None]) -> Alarm:
        """Call back when the clock stands at `at_s`, or as soon as the loop comes to it."""
        alarm = Alarm(self, at_s, callback)
        self._numbers += 1
        heappush(self._heap, (at_s, self._numbers, alarm))
        if at_s < self._timer_s:
            self._arm(at_s)
        return alarm

    def cancelled(self) -> None:
        """For alarms: one of them is not to ring any more."""
        self._cancelled += 1
        if self._cancelled > _FEW and 2 * self._cancelled > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Forget all of them."""
        self._heap.clear()
        self._cancelled = 0
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = None, math.inf

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_s = None, math.inf
        now_s = self._clock() + _EARLY_S
        while self._heap and self._heap[0][0] <= now_s:
            alarm = heappop(self._heap)[2]
            if not alarm.waits:
                self._cancelled -= 1
                continue
            try:
                alarm.ring()
            except Exception as error:
                self._failed(error)
        while self._heap and not self._heap[0][2].waits:
            heappop(self._heap)
            self._cancelled -= 1
        if self._heap and self._heap[0][0] < self._timer_s:
            self._arm(self._heap[0][0])
