"""The breakers that are known, of one kind: those that bar somebody, and closed ones whose trips are remembered.

Bounded, and unequal about what is forgotten: nothing that bars is forgotten because of others that don't. Closed ones
go first, the longest untouched before others; of those that bar, only beyond their own bound, the one that nobody has
asked for the longest time, never a pinned one, and the caller is told.
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count

from gateway.breaker.policy import Bounds
from gateway.breaker.record import BreakerRecord, Kind, State

_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Breaker:
    """One breaker as this gateway has it. Clock readings in seconds of the monotonic clock.

    version:     of the shared store, of the newest record heard from there.
    until_s:     when its state ends without anybody's doing: the wait is over, nobody has asked for long, or a closed
                 one has behaved so well that it is forgotten.
    probe_due_s: from when on the next probe may run.
    asked_s:     when a request of it came last.
    offered_s:   when one was last offered as a probe.
    """

    record: BreakerRecord
    version: int = 0
    until_s: float = _NEVER
    probe_due_s: float = _NEVER
    asked_s: float = -_NEVER
    offered_s: float = -_NEVER


class Registry:
    """Breakers of one kind by key. `barred` may be read, and only be written by `place`."""

    def __init__(self, kind: Kind, bounds: Bounds) -> None:
        self._kind = kind
        self._bounds = bounds
        self.barred: OrderedDict[str, Breaker] = OrderedDict()
        """Open, half-open and pinned; the one that was asked for longest ago first."""
        self._closed: OrderedDict[str, Breaker] = OrderedDict()
        self._pinned = 0
        self._agenda: list[tuple[float, int, Breaker]] = []
        self._entries = count()

    @property
    def closed(self) -> int:
        """How many closed ones are remembered."""
        return len(self._closed)

    @property
    def may_pin(self) -> bool:
        """Whether there is room for one more pinned one."""
        return self._pinned < self._bounds.pinned

    def find(self, key: str) -> Breaker | None:
        """The breaker of a key, if anything is remembered of it."""
        return self.barred.get(key) or self._closed.get(key)

    def find_or_new(self, key: str) -> Breaker:
        """The breaker of a key; a closed one if there was none."""
        return self.find(key) or Breaker(BreakerRecord(self._kind, key))

    def asked(self, breaker: Breaker, now_s: float) -> None:
        """A request came for one that bars."""
        breaker.asked_s = now_s
        self.barred.move_to_end(breaker.record.key)

    def place(self, breaker: Breaker, record: BreakerRecord) -> Breaker | None:
        """Give a breaker its new record, and its place. Returns the one that must go for it, if one that bars must."""
        key = record.key
        self._pinned += (record.state is State.pinned) - (breaker.record.state is State.pinned)
        breaker.record = record
        if record.state is State.closed:
            self.barred.pop(key, None)
            self._closed[key] = breaker
            self._closed.move_to_end(key)
            if len(self._closed) > self._bounds.closed:
                self._closed.popitem(last=False)
            return None
        self._closed.pop(key, None)
        self.barred[key] = breaker
        return self._longest_unasked(breaker) if len(self.barred) > self._bounds.barred else None

    def drop(self, breaker: Breaker) -> None:
        """Forget a closed one."""
        del self._closed[breaker.record.key]

    def plan(self, breaker: Breaker, until_s: float) -> None:
        """Have `due` return the breaker at `until_s`, instead of when it was planned before."""
        breaker.until_s = until_s
        if until_s == _NEVER:
            return
        heapq.heappush(self._agenda, (until_s, next(self._entries), breaker))
        if len(self._agenda) > 4 * (len(self.barred) + len(self._closed)) + 1024:
            current = {id(entry[2]): entry for entry in self._agenda if entry[0] == entry[2].until_s}
            self._agenda = sorted(current.values())

    def due(self, now_s: float, at_most: int) -> list[Breaker]:
        """Those whose time has come; they are not planned any more."""
        found: list[Breaker] = []
        while self._agenda and len(found) < at_most and self._agenda[0][0] <= now_s:
            until_s, _, breaker = heapq.heappop(self._agenda)
            if until_s == breaker.until_s and self.find(breaker.record.key) is breaker:
                breaker.until_s = _NEVER
                found.append(breaker)
        return found

    def _longest_unasked(self, newest: Breaker) -> Breaker | None:
        for breaker in self.barred.values():
            if breaker is not newest and breaker.record.state is not State.pinned:
                return breaker
        return None
