"""A pool: the replicas that serve one role, the pick of one among them, and what each of them may hold at once.

Knows neither rules nor requests, and nobody waits here: that is admission.py. What happens when no replica is
available is said here and acted on by the router.

Hot. Replicas are found by load: for each number of exchanges in flight there is a set of the available replicas that
have so many, an int with a bit for each. The least loaded is a bit of the lowest set, found without looking at any
other: 0.4 µs among 1 replica and among 1,000 (a loop over them took 0.3 and 58). So `in_flight` changes by `book` and
`release` alone.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gateway.routing.replica import Replica

_MOST_LOOKS = 32
"""How many replicas are asked whether a request fits. The rest have as many exchanges in flight or more: something
runs on each of them, so a request that waits hears of their room when that is released."""

_ROUNDING_US = 1e-6
"""What sums of step costs may be off after many additions and subtractions."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer 503 while no replica is available; the client is told to come back after `retry_after_s`."""

    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class Spill:
    """Send the requests to another pool while no replica is available."""

    pool: str


_REJECT = Reject()


class Pool:
    """Replicas of one role, and what one of them may run at once.

    step_budget_us: hook time that one step may take, so the sum of the step costs on a replica; None: any. A request
                    that costs more than that runs where no other with a cost does.
    max_in_flight:  requests on a replica, 0: any. max_structured: those with a grammar among them, 0: any.
    waiting:        requests in the pool's queue; written by the queue. While some wait, a new one with a cost is not
                    admitted past it.
    on_room:        called with a replica that can take more than before: one that came up, or was relieved while
                    requests wait. on_empty: called when the last available replica has gone. Both belong to the queue.
    on_trial:       called with a replica when a trial request of its breaker was sent to it.
    """

    __slots__ = (
        "_available",
        "_levels",
        "_lowest",
        "_next",
        "max_in_flight",
        "max_structured",
        "name",
        "on_empty",
        "on_room",
        "on_trial",
        "replicas",
        "step_budget_us",
        "waiting",
        "when_unavailable",
    )

    def __init__(
        self,
        name: str,
        replicas: tuple[Replica, ...],
        step_budget_us: float | None = None,
        when_unavailable: Reject | Spill = _REJECT,
        *,
        max_in_flight: int = 0,
        max_structured: int = 0,
    ) -> None:
        self.name = name
        self.replicas = replicas
        self.step_budget_us = step_budget_us
        self.when_unavailable = when_unavailable
        self.max_in_flight = max_in_flight
        self.max_structured = max_structured
        self.waiting = 0
        self.on_room: Callable[[Replica], None] | None = None
        self.on_empty: Callable[[], None] | None = None
        self.on_trial: Callable[[Replica], None] | None = None
        self._available = 0
        self._levels: list[int] = [0]
        self._lowest = 0
        self._next = 0
        for at, replica in enumerate(replicas):
            replica.at = at
            replica.bit = 1 << at
            replica.watch(self._changed)
            if replica.available:
                self._enter(replica)

    def is_available(self) -> bool:
        """Whether any replica may be picked now."""
        return self._available > 0

    def can_serve(self, excluded: Collection[Replica] = ()) -> bool:
        """Whether a replica is available that is not `excluded`, though it may have no room now."""
        available = self._available
        for replica in excluded:
            if replica.available:
                available -= 1
        return available > 0

    def admit(
        self, step_us: float = 0.0, structured: bool = False, excluded: Collection[Replica] = ()
    ) -> Replica | None:
        """Book the request on the replica with the fewest in flight of those where it fits; equals take turns.

        None: nothing is left of the pool but `excluded`, the replicas that were tried for this request already
        (`can_serve` tells), or the request has to wait. The caller owes a `release` with the same figures.
        """
        if not self._available or (step_us > 0.0 and self.waiting):
            return None
        lowest = self._lowest
        if self.max_in_flight and lowest >= self.max_in_flight:
            return None
        bits = self._levels[lowest]
        ahead = bits >> self._next
        if ahead & 1:
            at = self._next
        elif ahead:
            at = self._next + (ahead & -ahead).bit_length() - 1
        else:
            at = (bits & -bits).bit_length() - 1
        replica = self.replicas[at]
        if excluded or not self.fits(replica, step_us, structured):
            found = self.find(step_us, structured, excluded)
            if found is None:
                return None
            replica = found
        self._next = replica.at + 1
        self.book(replica, step_us, structured)
        return replica

    def find(self, step_us: float, structured: bool, excluded: Collection[Replica] = ()) -> Replica | None:
        """The replica that `admit` would book, whoever waits; books nothing."""
        looks = _MOST_LOOKS
        unseen = self._available
        for level in range(self._lowest, len(self._levels)):
            if not unseen or (self.max_in_flight and level >= self.max_in_flight):
                break
            bits = self._levels[level]
            while bits:
                ahead = bits >> self._next << self._next or bits
                bit = ahead & -ahead
                bits ^= bit
                unseen -= 1
                replica = self.replicas[bit.bit_length() - 1]
                if replica in excluded:
                    continue
                if self.fits(replica, step_us, structured):
                    return replica
                looks -= 1
                if not looks:
                    return None
        return None

    def fits(self, replica: Replica, step_us: float, structured: bool) -> bool:
        """Whether the caps and the step budget let the request on an available replica now."""
        if structured and not self.takes_structured(replica):
            return False
        return step_us <= self.room_us(replica)

    def takes_structured(self, replica: Replica) -> bool:
        """Whether one more request with a grammar is within the cap of those."""
        return not self.max_structured or replica.structured < self.max_structured

    def room_us(self, replica: Replica) -> float:
        """What a request may cost at most to fit there now; 0.0: only those without a cost do, below: none."""
        if self.max_in_flight and replica.in_flight >= self.max_in_flight:
            return -1.0
        budget_us = self.step_budget_us
        if budget_us is None:
            return math.inf
        if replica.reserved:
            return 0.0
        return max(budget_us + _ROUNDING_US - replica.booked_us, 0.0) if replica.booked else math.inf

    def book(self, replica: Replica, step_us: float = 0.0, structured: bool = False) -> None:
        """Count a request on a replica, whether or not it fits. The caller owes a `release` with the same figures."""
        level = replica.in_flight
        replica.in_flight = level + 1
        if step_us > 0.0:
            replica.booked += 1
            replica.booked_us += step_us
        if structured:
            replica.structured += 1
        if replica.available:
            levels = self._levels
            bit = replica.bit
            left = levels[level] ^ bit
            levels[level] = left
            if level + 1 == len(levels):
                levels.append(bit)
            else:
                levels[level + 1] |= bit
            if not left and level == self._lowest:
                self._lowest = level + 1
            if replica.on_trial:
                self._took_trial(replica)

    def release(self, replica: Replica, step_us: float = 0.0, structured: bool = False) -> None:
        """A request is over; those that wait may take its room."""
        level = replica.in_flight - 1
        replica.in_flight = level
        if step_us > 0.0:
            replica.booked -= 1
            replica.booked_us = replica.booked_us - step_us if replica.booked else 0.0
        if structured:
            replica.structured -= 1
        if replica.available:
            levels = self._levels
            bit = replica.bit
            levels[level + 1] ^= bit
            levels[level] |= bit
            if level < self._lowest:
                self._lowest = level
            if self.waiting and self.on_room is not None:
                self.on_room(replica)

    def set_step_budget(self, step_budget_us: float | None) -> None:
        """Change the budget while requests run; what has been admitted stays."""
        self.step_budget_us = step_budget_us
        if self.on_room is not None:
            for replica in self.replicas:
                if self.waiting and replica.available:
                    self.on_room(replica)

    def _took_trial(self, replica: Replica) -> None:
        replica.take_trial()
        if self.on_trial is not None:
            self.on_trial(replica)

    def _changed(self, replica: Replica) -> None:
        if replica.available:
            self._enter(replica)
            if self.waiting and self.on_room is not None:
                self.on_room(replica)
        else:
            self._leave(replica)
            if not self._available and self.on_empty is not None:
                self.on_empty()

    def _enter(self, replica: Replica) -> None:
        level = replica.in_flight
        levels = self._levels
        while len(levels) <= level:
            levels.append(0)
        levels[level] |= replica.bit
        if not self._available or level < self._lowest:
            self._lowest = level
        self._available += 1

    def _leave(self, replica: Replica) -> None:
        self._levels[replica.in_flight] ^= replica.bit
        self._available -= 1
        if self._available:
            while not self._levels[self._lowest]:
                self._lowest += 1
