"""The order of those who wait: higher priority first, and tenants in turn by the step cost they were given.

Within a priority each tenant has a lane, first come, first served. A lane's clock is the sum of what was given to it;
the lane that is furthest behind goes first (start-time fair queueing: P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996). A lane
that begins to wait starts at the clock of the neediest, so that nobody saves up turns while away. Only what is
admitted is charged: leaving by cancel or deadline costs nothing. Between two lanes that wait all the while, and whose
requests fit, what was given differs by no more than the greatest cost of one request of each.
"""

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator

from gateway.routing.replica import Replica
from gateway.routing.ticket import Ticket

_Entry = tuple[int, float, int]
"""Sorts lanes: priority downwards, clock, and the number of the first ticket among equals."""


_FEW_LANES = 128
"""So many are kept without looking for ones to forget."""


class Lane:
    """The tickets of one tenant at one priority, in order of coming."""

    __slots__ = ("clock_us", "entry", "priority", "tenant", "tickets", "waiting_us")

    def __init__(self, priority: int, tenant: str, clock_us: float) -> None:
        self.priority = priority
        self.tenant = tenant
        self.clock_us = clock_us
        self.waiting_us = 0.0
        self.tickets: OrderedDict[Ticket, None] = OrderedDict()  # a dict slows down when its first is removed often
        self.entry: _Entry = (0, 0.0, 0)

    @property
    def end_us(self) -> float:
        """Its clock when all its tickets will have been admitted."""
        return self.clock_us + self.waiting_us


class Lanes:
    """All lanes of a pool. `len` is the number of tickets; every change takes a search among the lanes that wait."""

    __slots__ = (
        "_by_tenant",
        "_entries",
        "_floor_us",
        "_forget_at",
        "_least_structured_us",
        "_least_us",
        "_order",
        "_size",
    )

    def __init__(self) -> None:
        self._by_tenant: dict[tuple[int, str], Lane] = {}
        """With lanes where nobody waits now but that are ahead of the others still."""
        self._order: list[Lane] = []
        self._entries: list[_Entry] = []
        """What `_order` is sorted by."""
        self._floor_us: dict[int, float] = {}
        """Clock of the neediest lane at each priority; never goes back."""
        self._size = 0
        self._forget_at = _FEW_LANES
        self._least_us = self._least_structured_us = math.inf
        """No ticket without, or with, a grammar costs less."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        """All tickets in the order in which they are to be offered room. End the loop before any change."""
        for lane in self._order:
            yield from lane.tickets

    def first_within(self, room_us: float, takes_structured: bool, replica: Replica, host: str = "") -> Ticket | None:
        """The first in order that costs no more a step, has no grammar unless that is taken, and did not exclude it.

        host: the name of the replica's pool, where that is another one.

        A search in vain looks at all tickets, 30 ns each; it is not repeated while there is less room than it found the
        cheapest to need.
        """
        if room_us < self._least_us and (room_us < self._least_structured_us or not takes_structured):
            return None
        least_us = least_structured_us = math.inf
        for lane in self._order:
            for ticket in lane.tickets:
                step_us = ticket.step_us
                if ticket.structured:
                    if step_us < least_structured_us:
                        least_structured_us = step_us
                    if not takes_structured:
                        continue
                elif step_us < least_us:
                    least_us = step_us
                if step_us <= room_us and replica not in ticket.excluded and (not host or host in ticket.hosts):
                    return ticket
        self._least_us, self._least_structured_us = least_us, least_structured_us
        return None

    def push(self, ticket: Ticket) -> None:
        """Add a ticket to its tenant's lane."""
        if ticket.structured:
            self._least_structured_us = min(self._least_structured_us, ticket.step_us)
        else:
            self._least_us = min(self._least_us, ticket.step_us)
        lane = self._lane(ticket)
        lane.tickets[ticket] = None
        lane.waiting_us += ticket.charge_us
        self._size += 1
        if len(lane.tickets) == 1:
            lane.clock_us = max(lane.clock_us, self._floor(lane.priority))
            self._place(lane)

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket that was not admitted."""
        self._remove(ticket, 0.0)

    def admit(self, ticket: Ticket) -> None:
        """Remove a ticket that was admitted, and charge its lane."""
        self._remove(ticket, ticket.charge_us)

    def charge(self, ticket: Ticket) -> None:
        """Charge a request that was admitted while others wait, without having to wait itself."""
        lane = self._lane(ticket)
        waits = bool(lane.tickets)
        if waits:
            self._take_out(lane)
        lane.clock_us = max(lane.clock_us, self._floor(lane.priority)) + ticket.charge_us
        if waits:
            self._place(lane)

    def surplus(self, ticket: Ticket) -> Ticket:
        """Who has to leave so that `ticket`, which doesn't wait yet, can: the last of the most demanding lane of the
        lowest priority, or `ticket` itself. Quick where that is plain, so that a flood is refused cheaply.
        """
        if not self._order:
            return ticket
        lowest = self._order[-1].priority
        mine = self._by_tenant.get((ticket.priority, ticket.tenant))
        count = len(mine.tickets) if mine is not None else 0
        even_share = self._size / (len(self._order) + (count == 0))
        if ticket.priority < lowest or (ticket.priority == lowest and count + 1 > even_share):
            return ticket
        first = bisect_left(self._entries, (-lowest,))
        lane = max(self._order[first:], key=_end_us)
        if ticket.priority == lowest:
            begin_us = max(mine.end_us if mine is not None else 0.0, self._floor(lowest))
            if begin_us + ticket.charge_us >= lane.end_us:
                return ticket
        return next(reversed(lane.tickets))

    def _lane(self, ticket: Ticket) -> Lane:
        key = (ticket.priority, ticket.tenant)
        lane = self._by_tenant.get(key)
        if lane is None:
            if len(self._by_tenant) >= self._forget_at:
                self._forget()
            lane = self._by_tenant[key] = Lane(ticket.priority, ticket.tenant, self._floor(ticket.priority))
        return lane

    def _floor(self, priority: int) -> float:
        first = bisect_left(self._entries, (-priority,))
        floor_us = self._floor_us.get(priority, 0.0)
        if first < len(self._order) and self._order[first].priority == priority:
            floor_us = self._floor_us[priority] = max(floor_us, self._order[first].clock_us)
        return floor_us

    def _remove(self, ticket: Ticket, charge_us: float) -> None:
        lane = self._by_tenant[ticket.priority, ticket.tenant]
        is_first = next(iter(lane.tickets)) is ticket
        if is_first or charge_us:
            self._floor(lane.priority)
            self._take_out(lane)
        del lane.tickets[ticket]
        lane.waiting_us = lane.waiting_us - ticket.charge_us if lane.tickets else 0.0
        lane.clock_us += charge_us
        self._size -= 1
        if lane.tickets and (is_first or charge_us):
            self._place(lane)
        if not self._size:
            # Nobody lacks anything: the past is settled.
            self._by_tenant.clear()
            self._floor_us.clear()
            self._forget_at = _FEW_LANES
            self._least_us = self._least_structured_us = math.inf

    def _place(self, lane: Lane) -> None:
        lane.entry = (-lane.priority, lane.clock_us, next(iter(lane.tickets)).number)
        at = bisect_left(self._entries, lane.entry)
        self._entries.insert(at, lane.entry)
        self._order.insert(at, lane)

    def _take_out(self, lane: Lane) -> None:
        at = bisect_left(self._entries, lane.entry)
        del self._entries[at], self._order[at]

    def _forget(self) -> None:
        """Drop lanes where nobody waits and that are no further than one that begins now."""
        for key, lane in tuple(self._by_tenant.items()):
            if not lane.tickets and lane.clock_us <= self._floor(lane.priority):
                del self._by_tenant[key]
        self._forget_at = max(_FEW_LANES, 2 * len(self._by_tenant))


def _end_us(lane: Lane) -> float:
    return lane.end_us
