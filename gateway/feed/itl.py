"""What the gateway sees of a replica on its own streams: the gaps between chunks, a few streams at a time.

Owns which streams are sampled, and who runs beside them. Only where there is no step feed (`on`); only streams of
requests without hooks, and of those a few per replica: the others are what is to be found out, and need no timing.
Hot: `Gaps.chunk` takes 0.13 µs; `began` and `ended` take 1 µs each, and 3 µs for suspects. None of them is called while
`on` is false.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.feed.control import Control, Period
from gateway.hookcost.observation import Origin, StepObservation

_MOST_SAMPLED = 4
_SEVERAL = "*"
"""Suspects of more than one signature run: whatever is slow now proves nothing."""
_MOST_REMEMBERED = 256
_FRESH_S = 30.0


class Attempt(Protocol):
    """What is needed of a request that runs: its origin, `costly` if it may be what makes a step slow."""

    @property
    def origin(self) -> Origin: ...
    @property
    def costly(self) -> bool:
        """`origin.costly`, without making an origin."""


class Gaps:
    """Times one stream. Made by `ReplicaItl.began`, told of every chunk, dropped with the stream."""

    __slots__ = ("_itl", "_last_s", "_period")

    def __init__(self, itl: "ReplicaItl") -> None:
        self._itl = itl
        self._period: Period | None = None
        self._last_s = 0.0

    def chunk(self, now_s: float) -> None:
        """Bytes of the stream arrived; `now_s` is a reading of the gateway's clock."""
        period = self._itl.period
        if period is None or period is not self._period:
            # The gap in which something changed belongs to neither side of the change.
            self._period = period
        else:
            period.gaps.append(now_s - self._last_s)
            period.last_s = now_s
        self._last_s = now_s


class ReplicaItl:
    """One replica's streams. All methods belong to one event loop.

    on:     whether it wants to be told at all; read before every other call.
    period: where gaps belong now; None: nowhere, they would prove nothing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.on = False
        self.period: Period | None = None
        self._clock = clock
        self._clear()

    def switch(self, on: bool, running: Iterable[Attempt] = ()) -> None:
        """Begin or stop; `running` are the attempts that the replica has now."""
        if on == self.on:
            return
        self.on = on
        self._clear()
        if on:
            self._turn()
            for attempt in running:
                self._count(attempt, 1)

    def began(self, attempt: Attempt, *, streams: bool) -> Gaps | None:
        """An attempt is sent to the replica. What to tell of its chunks; None: nothing."""
        self._count(attempt, 1)
        if not streams or attempt.costly or len(self._sampled) >= _MOST_SAMPLED:
            return None
        gaps = Gaps(self)
        self._sampled.add(gaps)
        if len(self._sampled) == 1:
            self._turn()
        return gaps

    def ended(self, attempt: Attempt, gaps: Gaps | None) -> None:
        """An attempt has ended, in whichever way. `gaps`: what `began` returned for it."""
        self._count(attempt, -1)
        if gaps is not None:
            self._sampled.discard(gaps)

    def speaks(self, now_s: float) -> bool:
        """Whether gaps were seen lately."""
        return now_s - self._control.last_s < _FRESH_S

    def median_us(self) -> float | None:
        """The median of the latest gaps while nothing suspect ran; None without any."""
        return self._control.median_us()

    def evidence(self, now_s: float) -> list[StepObservation]:
        """What clearly costs other requests time: for each such signature, its latest request's share in a step."""
        if not self.on:
            return []
        return [
            StepObservation(origin, now_s, excess.us, {"itl": excess.us})
            for excess in self._control.evidence(now_s)
            if (origin := self._latest.get(excess.signature)) is not None
        ]

    def _clear(self) -> None:
        self.period = None
        self._control = Control()
        self._suspects: dict[str, int] = {}
        self._suspect = _SEVERAL
        self._latest: dict[str, Origin] = {}
        self._sampled: set[Gaps] = set()
        self._plain = 0
        self._stretch = 0

    def _count(self, attempt: Attempt, change: int) -> None:
        if not attempt.costly:
            before = self._plain
            self._plain = after = max(0, before + change)
            if before.bit_length() != after.bit_length():
                self._changed()
            return
        origin = attempt.origin
        signature = origin.signature
        count = self._suspects.get(signature, 0) + change
        if count > 0:
            self._suspects[signature] = count
            self._latest[signature] = origin
            if len(self._latest) > _MOST_REMEMBERED:
                del self._latest[next(iter(self._latest))]
        else:
            self._suspects.pop(signature, None)
        self._changed()

    def _changed(self) -> None:
        """Who runs has changed; with nobody to time, it does not matter how."""
        if self._sampled:
            self._turn()
        else:
            self.period, self._suspect = None, _SEVERAL

    def _turn(self) -> None:
        """Find where gaps belong now that who runs has changed."""
        suspects = self._suspects
        signature, count = "", 0
        if suspects:
            signature, count = next(iter(suspects.items())) if len(suspects) == 1 else (_SEVERAL, 0)
        if signature != self._suspect:
            self._suspect = signature
            self._stretch += 1
        if signature == _SEVERAL:
            self.period = None
        else:
            level = self._plain.bit_length()
            self.period = self._control.period(signature, level, self._stretch, count, self._clock())
