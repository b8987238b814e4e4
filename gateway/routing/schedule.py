"""When a rule is in force: days of the week and a time of day, in a time zone.

Hot where a rule has one: whether it is in force now, and until when that stays so, is worked out once and kept until
then. Clocks that are put forward or back move the hours with them, for bounds are times of day as people read them
there: a bound that falls into the hour left out counts as the moment at which the clock jumps over it, one that comes
twice as its first time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ALL_DAYS = frozenset(range(7))
_MIDNIGHT = time()


@dataclass(frozen=True, slots=True)
class Hours:
    """From `start` to `end` on the days that begin it, 0 for Monday; past midnight where `end` is not after `start`."""

    zone: ZoneInfo
    days: frozenset[int] = _ALL_DAYS
    start: time = _MIDNIGHT
    end: time = _MIDNIGHT

    def span(self, day: date) -> tuple[float, float] | None:
        """Begin and end of what begins on a day, in seconds since the epoch."""
        if day.weekday() not in self.days:
            return None
        last = day if self.end > self.start else day + timedelta(days=1)
        return self._instant(day, self.start), self._instant(last, self.end)

    def _instant(self, day: date, at: time) -> float:
        local = datetime.combine(day, at, self.zone)
        # There is no such time where a clock was put forward over it: there and back comes out an hour later.
        shown = local.astimezone(UTC).astimezone(self.zone)
        if shown.replace(tzinfo=None) == local.replace(tzinfo=None):
            return local.timestamp()
        before, after = local.replace(fold=1).timestamp(), local.timestamp()
        return _jump(self.zone, before, after)


class Schedule:
    """Whether some hours are now. `wall` gives seconds since the epoch."""

    __slots__ = ("_active", "_from_s", "_until_s", "_wall", "hours")

    def __init__(self, hours: Hours, wall: Callable[[], float]) -> None:
        self.hours = hours
        self._wall = wall
        self._active = False
        self._from_s = inf
        self._until_s = -inf

    def __call__(self) -> bool:
        """Whether they are."""
        now_s = self._wall()
        if not self._from_s <= now_s < self._until_s:  # later, or the clock was set back
            self._active, self._until_s = self._look(now_s)
            self._from_s = now_s
        return self._active

    def _look(self, now_s: float) -> tuple[bool, float]:
        """Whether they are now, and until when that stays so."""
        spans = list(self._spans(now_s))
        active = any(start_s <= now_s < end_s for start_s, end_s in spans)
        # Where one span ends as the next begins, nothing changes; then it is looked at once more, and that is all.
        changes = [at_s for span in spans for at_s in span if at_s > now_s]
        return active, min(changes, default=now_s + 86_400.0)

    def _spans(self, now_s: float) -> Iterator[tuple[float, float]]:
        today = datetime.fromtimestamp(now_s, self.hours.zone).date()
        for ahead in range(-2, 9):
            span = self.hours.span(today + timedelta(days=ahead))
            if span is not None:
                yield span


def _jump(zone: ZoneInfo, low_s: float, high_s: float) -> float:
    """The moment between two at which the zone's offset changes, to the second."""
    offset = datetime.fromtimestamp(low_s, zone).utcoffset()
    low, high = int(low_s), int(high_s)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return float(high)
