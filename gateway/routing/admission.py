"""Where requests wait until a replica of their pool has room in its step budget.

Owns the queue of one pool, its bounds and who is next. Room is the pool's to know; order and fairness are fairness.py.
Who waits is a ticket with two callbacks, not a task, and there is one timer, for the earliest deadline.

Theory of operation. Nobody who waits fits anywhere; that holds after every call. So room is offered when some appears
and on that replica alone: a release, a replica that comes up, a greater budget. It is offered in order, and those that
it is too small for are passed over, so that the first in line does not keep others from room that it can't use. Passed
over for `reserve_after_s`, a ticket gets a replica reserved, the one with the least booked: nothing else with a cost
is put there until the sum has sunk to where the ticket fits, and in the end to zero, where anything does.

Where pools take what others have no room for, a replica that nobody waits for at home is offered to those who wait in
these, in order. Such guests are spared what their own pool would not admit, until a request of this one has waited for
`reserve_after_s`; then it goes before them.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Protocol

from gateway.routing.drain import DrainRate
from gateway.routing.fairness import Lanes
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Rejection
from gateway.routing.ticket import Ticket

_LONGEST_RETRY_AFTER_S = 60
_EARLY_S = 0.001
"""uvloop's timers have milliseconds, and may be half of one early."""


class Timer(Protocol):
    """What `call_at` gives; that of asyncio's loop fits."""

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """How requests of a pool may wait.

    queue:           tickets at most; 0: nobody waits. Each holds its body and a connection, and up to 30 ns whenever a
                     request ends.
    max_wait_s:      the longest wait; below the usual timeouts of clients, so that they are told before they leave.
    reserve_after_s: how long a ticket is passed over by smaller ones before a replica is reserved for it.
    """

    queue: int = 1000
    max_wait_s: float = 30.0
    reserve_after_s: float = 2.0


class AdmissionQueue:
    """The queue of one pool. All methods belong to one event loop.

    Counters, ever growing: admitted, full (429), late (503), left (cancelled), homeless (their pool was gone).
    """

    def __init__(
        self,
        pool: Pool,
        policy: AdmissionPolicy,
        *,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        """`clock` gives seconds; `call_at(when, callback)` calls back when the clock stands there (`loop.call_at`)."""
        self.pool = pool
        self.policy = policy
        self._clock = clock
        self._call_at = call_at
        self._lanes = Lanes()
        self._drain = DrainRate()
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._timer: Timer | None = None
        self._timer_s = math.inf
        self._numbers = 0
        self._holder: Ticket | None = None
        self._reserved: Replica | None = None
        self._decided: deque[Ticket] = deque()
        self._telling = False
        self._hosts: tuple[AdmissionQueue, ...] = ()
        self._origins: list[AdmissionQueue] = []
        """Of pools whose requests may be guests here."""
        self.admitted = self.full = self.late = self.left = self.homeless = 0
        pool.on_room = self._room
        pool.on_empty = self._dissolve

    def __len__(self) -> int:
        return len(self._lanes)

    def wait(self, ticket: Ticket) -> Replica | Rejection | None:
        """Let a request wait that `pool.admit` did not take. Calls none of the ticket's callbacks.

        A replica: it is booked there after all, since nobody who waits longer can use that room. A rejection: the
        answer to give now. None: it waits; one of its callbacks will be called, or cancel it.
        """
        now_s = self._clock()
        reserved = self._reserved
        outcome = self._seat(ticket, now_s)
        if self._lanes:
            self._reserve(now_s)
        if reserved is not None and reserved is not self._reserved:
            self._offer(reserved)
        if outcome is None:
            outcome, ticket.outcome = ticket.outcome, None
        if outcome is not None:
            ticket.forget()
        self._tell()
        return outcome

    def overflow_to(self, hosts: "tuple[AdmissionQueue, ...]") -> None:
        """From now on these pools, in this order, take what there is no room for, as far as they have some to spare."""
        for host in self._hosts:
            host._origins.remove(self)
            host.pool.wanted -= len(self._lanes)
        self._hosts = hosts
        self.pool.overflow = tuple([host.pool for host in hosts])
        for host in hosts:
            host._origins.append(self)
            host.pool.wanted += len(self._lanes)

    def cancel(self, ticket: Ticket) -> None:
        """The client left: forget its ticket, and give back what it was booked. Harmless when it waits no more."""
        if ticket.waits:
            self.left += 1
            self._take_out(ticket)
            self._settle(ticket)
            self._tell()
        outcome, ticket.outcome = ticket.outcome, None
        ticket.forget()
        if isinstance(outcome, Replica):
            ticket.give_back(self.pool, outcome)

    def retry_after_s(self) -> int:
        """In how many seconds the queue, as it stands, will have been admitted at the rate observed."""
        return self._retry_after_s(self._clock())

    def close(self) -> None:
        """Refuse all who wait, and stop the timer."""
        self._dissolve()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_s = None, math.inf

    def dearest_us(self) -> float:
        """The greatest cost among those who wait; 0.0 if nobody does."""
        return max([ticket.step_us for ticket in self._lanes], default=0.0)

    def snapshot(self) -> dict[str, object]:
        """For the API: who waits and since when, what was reserved, what came of the others."""
        now_s = self._clock()
        return {
            "waiting": len(self._lanes),
            "oldest_s": max((now_s - ticket.since_s for ticket in self._lanes), default=0.0),
            "waiting_us": math.fsum(ticket.step_us for ticket in self._lanes),
            "admitted_per_s": self._drain.per_s(now_s),
            "reserved": None if self._reserved is None else self._reserved.name,
            "admitted": self.admitted,
            "full": self.full,
            "late": self.late,
            "left": self.left,
            "homeless": self.homeless,
        }

    # --- room

    def _room(self, replica: Replica) -> None:
        """A replica can take more."""
        self._offer(replica)
        self._tell()
        for origin in self._origins:
            origin._visit(self.pool, replica)

    def look_abroad(self) -> None:
        """Room of other pools may have come without a word, by what their steps took: give it to those who wait."""
        for queue in self._hosts:
            host = queue.pool
            while self._lanes and not host.waiting:
                first = next(iter(self._lanes))
                replica = host.find(first.step_us, first.structured, first.excluded, self.pool)
                if replica is None:
                    break
                left = len(self._lanes)
                self._visit(host, replica)
                if len(self._lanes) == left:  # it may not go there
                    break

    def _visit(self, host: Pool, replica: Replica) -> None:
        """A replica of another pool may have room to spare: give it to those who wait here, in order."""
        now_s = self._clock()
        while self._lanes and replica.available and not host.waiting:
            room_us = host.guest_room_us(replica, self.pool)
            ticket = self._lanes.first_within(room_us, host.takes_structured(replica), replica, host.name)
            if ticket is None:
                break
            ticket.host = host
            self._take_out(ticket, admitted=True)
            host.book_guest(replica, self.pool, ticket.step_us, ticket.structured)
            self.admitted += 1
            self._drain.count(now_s)
            self._decide(ticket, replica)
            self._settle(ticket, replica)
        self._tell()

    def _offer(self, replica: Replica) -> None:
        """Give a replica's room to those who wait, in order."""
        now_s = self._clock()
        while self._lanes and replica.available:
            self._reserve(now_s)
            ticket = self._next_for(replica)
            if ticket is None:
                break
            self._take_out(ticket, admitted=True)
            self.pool.book(replica, ticket.step_us, ticket.structured)
            self.admitted += 1
            self._drain.count(now_s)
            self._decide(ticket, replica)
            self._settle(ticket, replica)

    def _next_for(self, replica: Replica) -> Ticket | None:
        pool = self.pool
        if replica is self._reserved:
            holder = self._holder
            assert holder is not None
            replica.reserved = False
            if pool.fits(replica, holder.step_us, holder.structured):
                return holder
            replica.reserved = True
        return self._lanes.first_within(pool.room_us(replica), pool.takes_structured(replica), replica)

    def _reserve(self, now_s: float, priority: int | None = None) -> None:
        """Reserve a replica for the first in line if it was passed over for too long.

        `priority`: of one that is about to come; what is reserved yields to a higher one than its holder's.
        """
        first = next(iter(self._lanes))
        highest = first.priority if priority is None else max(first.priority, priority)
        if self._reserved is not None and self._holder is not None:
            if self._reserved.available and highest <= self._holder.priority:
                return
            self._unreserve()
        waits_long = now_s - first.since_s >= self.policy.reserve_after_s
        if waits_long and first.step_us > 0.0 and first.priority == highest:
            choice = [r for r in self.pool.replicas if r.available and r not in first.excluded]
            if choice:
                self._holder = first
                self._reserved = min(choice, key=_booked_us)
                self._reserved.reserved = True

    def _unreserve(self) -> None:
        if self._reserved is not None:
            self._reserved.reserved = False
            self._reserved = self._holder = None

    # --- coming and going

    def _seat(self, ticket: Ticket, now_s: float) -> Replica | Rejection | None:
        """Find a newcomer room that nobody else can use, or a place in the queue, or neither."""
        if self._lanes:
            self._reserve(now_s, ticket.priority)
            replica = self.pool.find(ticket.step_us, ticket.structured, ticket.excluded)
            if replica is not None:
                self._lanes.charge(ticket)
                self.pool.book(replica, ticket.step_us, ticket.structured)
                return replica
        if not self.pool.can_serve(ticket.excluded):
            self.homeless += 1
            return self._homeless()
        if len(self._lanes) >= self.policy.queue:
            surplus = self._lanes.surplus(ticket)
            self.full += 1
            if surplus is ticket:
                return self._full(now_s)
            self._decide(surplus, self._full(now_s))
            self._take_out(surplus)
            if surplus is self._holder:
                self._unreserve()
        self._enter(ticket, now_s)
        return None

    def _enter(self, ticket: Ticket, now_s: float) -> None:
        self._numbers += 1
        most_s = self.policy.max_wait_s
        ticket.number = self._numbers
        ticket.since_s = now_s
        ticket.until_s = now_s + (most_s if ticket.max_wait_s is None else min(ticket.max_wait_s, most_s))
        ticket.waits = True
        self._lanes.push(ticket)
        self._count(1)
        if len(self._deadlines) > 2 * len(self._lanes) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].waits]
            heapify(self._deadlines)
        heappush(self._deadlines, (ticket.until_s, ticket.number, ticket))
        patient_s = now_s + self.policy.reserve_after_s
        if self._origins and patient_s < ticket.until_s and any(each.guests for each in self.pool.replicas):
            heappush(self._deadlines, (patient_s, ticket.number, ticket))
        self._set_timer()

    def _take_out(self, ticket: Ticket, *, admitted: bool = False) -> None:
        ticket.waits = False
        if admitted:
            self._lanes.admit(ticket)
        else:
            self._lanes.leave(ticket)
        self._count(-1)

    def _count(self, more: int) -> None:
        """So many more wait."""
        self.pool.waiting += more
        self.pool.wanted += more
        for host in self._hosts:
            host.pool.wanted += more

    def _settle(self, ticket: Ticket, taken: Replica | None = None) -> None:
        """A ticket has left: what was reserved for it is open to the others, unless that is what it has `taken`."""
        if ticket is self._holder:
            replica = self._reserved
            self._unreserve()
            if replica is not None and replica is not taken:
                self._offer(replica)

    def _dissolve(self) -> None:
        """The pool's last replica has gone: hand all back, for another pool to take."""
        self._unreserve()
        for ticket in tuple(self._lanes):
            self._take_out(ticket)
            self.homeless += 1
            self._decide(ticket, self._homeless())
        self._tell()

    def _set_timer(self) -> None:
        while self._deadlines and not self._deadlines[0][2].waits:
            heappop(self._deadlines)
        next_s = self._deadlines[0][0] if self._deadlines else math.inf
        if next_s >= self._timer_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = next_s
        self._timer = self._call_at(next_s, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_s = None, math.inf
        now_s = self._clock()
        while self._deadlines and (self._deadlines[0][0] <= now_s + _EARLY_S or not self._deadlines[0][2].waits):
            ticket = heappop(self._deadlines)[2]
            if ticket.waits and ticket.until_s > now_s + _EARLY_S:
                self._go_before_guests(ticket)
            elif ticket.waits:
                self.late += 1
                self._take_out(ticket)
                self._decide(ticket, self._late(ticket, now_s))
                self._settle(ticket)
        self._set_timer()
        self._tell()

    def _go_before_guests(self, ticket: Ticket) -> None:
        """One has waited for long enough because of guests: they are spared no more where it can run."""
        hosting = [each for each in self.pool.replicas if each.guests and each.available]
        for replica in sorted(hosting, key=_booked_us):
            replica.guests_us = math.inf
            self._offer(replica)
            if not ticket.waits:
                break

    # --- telling

    def _decide(self, ticket: Ticket, outcome: Replica | Rejection) -> None:
        ticket.outcome = outcome
        self._decided.append(ticket)

    def _tell(self) -> None:
        """Call back, one after the other: what a callback brings about is told by the loop that called it."""
        if self._telling:
            return
        self._telling = True
        errors: list[Exception] = []
        try:
            while self._decided:
                ticket = self._decided.popleft()
                outcome, ticket.outcome = ticket.outcome, None
                admitted, refused = ticket.admitted, ticket.refused
                ticket.forget()
                try:
                    if isinstance(outcome, Replica):
                        admitted(outcome)
                    elif outcome is not None:
                        refused(outcome)
                except Exception as error:
                    errors.append(error)
        finally:
            self._telling = False
        if errors:
            raise ExceptionGroup(f"callbacks of tickets that waited for pool {self.pool.name!r} failed", errors)

    # --- answers

    def _full(self, now_s: float) -> Rejection:
        message = (
            f"{self.policy.queue} requests wait for pool {self.pool.name!r} already, as many as may: "
            "the hook cost of those that run fills its step budget. Come back later, or with a cheaper request"
        )
        return Rejection(429, "queue_full", message, self._retry_after_s(now_s))

    def _late(self, ticket: Ticket, now_s: float) -> Rejection:
        message = (
            f"no replica of pool {self.pool.name!r} had room for the request's {ticket.step_us:.0f} µs a step "
            f"within {ticket.until_s - ticket.since_s:g} s"
        )
        return Rejection(503, "queue_timeout", message, self._retry_after_s(now_s))

    def _homeless(self) -> Rejection:
        return Rejection(503, "pool_unavailable", f"no replica of pool {self.pool.name!r} is available", 1)

    def _retry_after_s(self, now_s: float) -> int:
        rate = self._drain.per_s(now_s)
        if rate * _LONGEST_RETRY_AFTER_S <= len(self._lanes) + 1:
            # Nothing, or next to nothing, was admitted: longer than those who wait now may wait is not needed.
            return max(1, min(math.ceil(self.policy.max_wait_s), _LONGEST_RETRY_AFTER_S))
        return max(1, math.ceil((len(self._lanes) + 1) / rate))


def _booked_us(replica: Replica) -> float:
    return replica.booked_us
