"""What the gateway sees of a replica on its own streams: the gaps between chunks, a few streams at a time.

Owns which streams are sampled, and who runs beside them. Only where there is no step feed (`on`); only streams of
requests without hooks, and of those a few per replica: the others are what is to be found out, and need no timing.
Hot: `Gaps.chunk` takes 0.2 µs, `began` and `ended` under 1 µs, and none is called while `on` is false.
"""

from collections import Counter
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
    """What is needed of a request that runs. `plain`: it asks for no hook at all."""

    @property
    def origin(self) -> Origin: ...

    @property
    def plain(self) -> bool: ...


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

    __slots__ = (
        "_clock",
        "_control",
        "_latest",
        "_level",
        "_plain",
        "_sampled",
        "_stretch",
        "_suspects",
        "on",
        "period",
    )

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
            for attempt in running:
                self._count(attempt, 1)
            self._turn()

    def began(self, attempt: Attempt, *, streams: bool) -> Gaps | None:
        """An attempt is sent to the replica. What to tell of its chunks; None: nothing."""
        self._count(attempt, 1)
        self._turn()
        if not (attempt.plain and streams) or len(self._sampled) >= _MOST_SAMPLED:
            return None
        gaps = Gaps(self)
        self._sampled.add(gaps)
        return gaps

    def ended(self, attempt: Attempt, gaps: Gaps | None) -> None:
        """An attempt has ended, in whichever way. `gaps`: what `began` returned for it."""
        self._count(attempt, -1)
        self._turn()
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
        self._suspects: Counter[str] = Counter()
        self._latest: dict[str, Origin] = {}
        self._sampled: set[Gaps | None] = set()
        self._plain = 0
        self._stretch = 0
        self._level: tuple[str, int, int] | None = None

    def _count(self, attempt: Attempt, change: int) -> None:
        if attempt.plain:
            self._plain = max(0, self._plain + change)
            return
        origin = attempt.origin
        signature = origin.signature
        count = self._suspects[signature] + change
        if count > 0:
            self._suspects[signature] = count
            self._latest[signature] = origin
            if len(self._latest) > _MOST_REMEMBERED:
                del self._latest[next(iter(self._latest))]
        else:
            del self._suspects[signature]

    def _turn(self) -> None:
        """Find the period that has come, if another one has."""
        suspects = self._suspects
        signature = "" if not suspects else next(iter(suspects)) if len(suspects) == 1 else _SEVERAL
        level = (signature, self._plain.bit_length(), suspects[signature] if suspects else 0)
        before, self._level = self._level, level
        if level == before:
            return
        if before is None or before[0] != signature:
            self._stretch += 1
        self.period = (
            None if signature == _SEVERAL else self._control.period(*level[:2], self._stretch, level[2], self._clock())
        )
