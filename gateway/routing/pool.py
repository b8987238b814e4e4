"""A pool: the replicas that serve one role, the pick of one among them, and what each of them may hold at once.

Knows neither rules nor requests, and nobody waits here: that is admission.py. What happens when no replica is
available is said here and acted on by the router.

Hot. Replicas are found by load: for each number of exchanges in flight there is a set of the available replicas that
have so many, an int with a bit for each. The least loaded is a bit of the lowest set, found without looking at any
other: 0.4 µs among 1 replica and among 1,000 (a loop over them took 0.3 and 58). So `in_flight` changes by `book` and
`release` alone. A pool with a balancer asks that instead, and looks at every replica.
"""

import math
from collections.abc import Callable, Collection

from gateway.routing.balance.ask import Ask
from gateway.routing.balance.balancer import Balancer, Plan
from gateway.routing.capabilities import Capabilities
from gateway.routing.replica import Replica
from gateway.routing.settings import PoolSettings, Reject, Spill

_MOST_LOOKS = 32
"""How many replicas are asked whether a request fits. The rest have as many exchanges in flight or more: something
runs on each of them, so a request that waits hears of their room when that is released."""

_UNBOOKED = 2.0
"""How many times what may be booked the hooks of a replica may have taken lately where guests are let in: more
tells of requests that others have sent, or of costs that nobody has predicted. Plain requests have some hooks, too."""

_ROUNDING_US = 1e-6
"""What sums of step costs may be off after many additions and subtractions."""


_REJECT = Reject()


class Pool:
    """Replicas of one role, and what one of them may run at once.

    step_budget_us: hook time that one step may take, so the sum of the step costs on a replica; None: any. A request
                    that costs more than that runs where no other with a cost does. Of several workers each has a part.
    judged_us:      what a step may take by the configuration, which breakers judge requests by: a step is one, whoever
                    sent what is in it.
    max_in_flight:  requests on a replica, 0: any. max_structured: those with a grammar among them, 0: any.
    alone_us:       what a request may cost at most where no other with a cost runs; any, unless others book there, too.
    waiting:        requests in the pool's queue; written by the queue. While some wait, a new one with a cost is not
                    admitted past it. wanted: with those of other pools that wait and may be guests here.
    when_full:      where requests go that it has no room for. overflow: the pools that this comes to, in order; they
                    take them as guests, as far as they have room to spare. Written by whoever has all pools.
    on_room:        called with a replica that can take more than before: one that came up, or was relieved while
                    requests wait. on_empty: called when the last available replica has gone. Both belong to the queue.
    resting:        replicas whose engines asked for a pause and that are fit otherwise. A pool of which no others are
                    left is busy, not unavailable: requests wait for it.
    on_trial:       called with a replica when a trial request of its breaker was sent to it.
    balancer:       chooses in `admit_for`; None: it is not to be called, `admit` takes the least loaded.
    capabilities:   what its engines can do; None: everything. For the router.
    backend:        the grammar backend of its engines, by the label of its prices; None: that of the configuration.
    spells_schemas: JSON schemas are sent to its engines in one spelling.

    A replica belongs to one pool for its life. Its place among the bits is its own until it is removed.
    """

    __slots__ = (
        "_available",
        "_free",
        "_levels",
        "_lowest",
        "_next",
        "_plan",
        "_ready",
        "_said",
        "_slots",
        "alone_us",
        "backend",
        "balancer",
        "capabilities",
        "judged_us",
        "max_in_flight",
        "max_structured",
        "name",
        "on_empty",
        "on_room",
        "on_trial",
        "overflow",
        "replicas",
        "resting",
        "spells_schemas",
        "step_budget_us",
        "waiting",
        "wanted",
        "when_full",
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
        balance: Plan | None = None,
        capabilities: Capabilities | None = None,
        backend: str | None = None,
        spells_schemas: bool = False,
    ) -> None:
        self.name = name
        self.replicas = replicas
        self.step_budget_us = self.judged_us = step_budget_us
        self.when_unavailable = when_unavailable
        self.max_in_flight = max_in_flight
        self.max_structured = max_structured
        self.waiting = self.wanted = 0
        self.when_full: Spill | None = None
        self.overflow: tuple[Pool, ...] = ()
        self.alone_us = math.inf
        self.resting = 0
        self.on_room: Callable[[Replica], None] | None = None
        self.on_empty: Callable[[], None] | None = None
        self.on_trial: Callable[[Replica], None] | None = None
        self.capabilities = capabilities
        self.backend = backend
        self._said = (capabilities, backend)
        """As configured: engines may say more."""
        self.spells_schemas = spells_schemas
        self.balancer: Balancer | None = None if balance is None else balance.build()
        self._plan = balance
        self._available = 0
        self._levels: list[int] = [0]
        self._lowest = 0
        self._next = 0
        self._slots: list[Replica] = []
        """By place. One that was removed stands there until another takes its place, with no bit in any level."""
        self._free: list[int] = []
        self._ready: list[Replica] | None = None
        for replica in replicas:
            self._place(replica)

    def add(self, replica: Replica) -> None:
        """One more replica, which may take what waits. Raises ValueError where it is, or was, in a pool."""
        self._place(replica)
        self.replicas = (*self.replicas, replica)
        if replica.available and self.wanted and self.on_room is not None:
            self.on_room(replica)

    def remove(self, replica: Replica) -> None:
        """Nothing new goes to a replica, for good; what runs there is released as ever.

        Raises ValueError where it is not of this pool.
        """
        if replica not in self.replicas:
            raise ValueError(f"replica {replica.name!r} is not in pool {self.name!r}")
        self.replicas = tuple([each for each in self.replicas if each is not replica])
        replica.retire()
        self._free.append(replica.at)

    def reconfigure(self, settings: PoolSettings) -> None:
        """Change what the configuration says while requests run; what has been admitted stays."""
        self.when_unavailable = settings.when_unavailable
        self.when_full = settings.when_full
        self.max_in_flight = settings.max_in_flight
        self.max_structured = settings.max_structured
        said = (settings.capabilities, settings.backend)
        if said != self._said:  # else what the engines have said since stands
            self._said = said
            self.capabilities, self.backend = said
        self.spells_schemas = settings.spells_schemas
        self.rebalance(settings.balance)
        self.judged_us = settings.step_budget_us
        self.set_step_budget(settings.step_budget_us)

    def rebalance(self, plan: Plan | None) -> None:
        """Choose by a plan from now on; a balancer whose plan stays the same goes on, with all that it remembers."""
        if plan != self._plan:
            self._plan = plan
            self.balancer = None if plan is None else plan.build()

    @property
    def least_in_flight(self) -> int:
        """Requests on the least loaded of the available replicas."""
        return self._lowest

    def is_available(self) -> bool:
        """Whether any replica may be picked now, or after a pause that it asked for."""
        return self._available > 0 or self.resting > 0

    def serves_beside(self, replica: Replica) -> bool:
        """Whether any other replica may be picked now."""
        return self._available > int(replica.available)

    def can_serve(self, excluded: Collection[Replica] = ()) -> bool:
        """Whether a replica is available that is not `excluded`, though it may have no room now, or rest."""
        available = self._available + self.resting
        for replica in excluded:
            if replica.available or replica.resting:
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
        replica = self._slots[at]
        if excluded or not self.fits(replica, step_us, structured):
            found = self.find(step_us, structured, excluded)
            if found is None:
                return None
            replica = found
        self._next = replica.at + 1
        self.book(replica, step_us, structured)
        return replica

    def admit_for(
        self, ask: Ask, step_us: float = 0.0, structured: bool = False, excluded: Collection[Replica] = ()
    ) -> Replica | None:
        """The same, on the replica that the pool's balancer chooses for `ask` among those where the request fits."""
        balancer = self.balancer
        if not self._available or (step_us > 0.0 and self.waiting):
            return None
        candidates = [
            each for each in self._available_now() if each not in excluded and self.fits(each, step_us, structured)
        ]
        if not candidates:
            return None
        assert balancer is not None
        replica = balancer.choose(ask, self.replicas, candidates)
        balancer.learn(ask, replica)
        self.book(replica, step_us, structured)
        return replica

    def admit_guest(
        self, origin: "Pool", step_us: float, structured: bool, excluded: Collection[Replica] = ()
    ) -> Replica | None:
        """Book a request of another pool, which has no room for it, where there is some to spare; None: nowhere.

        The caller owes a `release_guest` with the same figures.
        """
        if not self._available or self.waiting:
            return None
        replica = self.find(step_us, structured, excluded, origin)
        if replica is not None:
            self.book_guest(replica, origin, step_us, structured)
        return replica

    def find(
        self, step_us: float, structured: bool, excluded: Collection[Replica] = (), origin: "Pool | None" = None
    ) -> Replica | None:
        """The replica that `admit` would book, whoever waits; books nothing. `origin`: for a guest of that pool."""
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
                replica = self._slots[bit.bit_length() - 1]
                if replica in excluded:
                    continue
                if origin is None:
                    fits = self.fits(replica, step_us, structured)
                else:
                    fits = self.fits_guest(replica, origin, step_us, structured)
                if fits:
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
        if replica.guests and replica.guests_us != math.inf:
            return self._room_beside_guests_us(replica)
        if budget_us is None:
            return math.inf
        if replica.reserved:
            return 0.0
        return max(budget_us + _ROUNDING_US - replica.booked_us, 0.0) if replica.booked else self.alone_us

    def fits_guest(self, replica: Replica, origin: "Pool", step_us: float, structured: bool) -> bool:
        """Whether a request of another pool may run on an available replica now."""
        if structured and not self.takes_structured(replica):
            return False
        return step_us <= self.guest_room_us(replica, origin)

    def guest_room_us(self, replica: Replica, origin: "Pool") -> float:
        """What a request of another pool may cost at most to run there now; below 0.0: none may.

        What runs there stays within the step budgets of both pools: a guest is slowed no more than at home. Where the
        costs of this pool are not bounded, guests are only where nothing of its own runs.
        """
        most = self.max_in_flight or origin.max_in_flight
        if (most and replica.in_flight >= most) or replica.reserved or replica.on_trial:
            return -1.0
        if self.step_budget_us is None and replica.in_flight > replica.guests:
            return -1.0
        limit_us = replica.guests_us
        for budget_us in (self.step_budget_us, origin.step_budget_us):
            if budget_us is not None and budget_us < limit_us:
                limit_us = budget_us
        if replica.hooks_us > limit_us * _UNBOOKED:
            return -1.0
        return limit_us + _ROUNDING_US - replica.booked_us

    def _room_beside_guests_us(self, replica: Replica) -> float:
        """`room_us` where guests are to be spared."""
        budget_us = self.step_budget_us
        if budget_us is None:
            return -1.0
        if replica.reserved:
            return 0.0
        return max(min(budget_us, replica.guests_us) + _ROUNDING_US - replica.booked_us, 0.0)

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
            if self.wanted and self.on_room is not None:
                self.on_room(replica)

    def book_guest(self, replica: Replica, origin: "Pool", step_us: float = 0.0, structured: bool = False) -> None:
        """Count a request of another pool on a replica. The caller owes a `release_guest` with the same figures."""
        replica.guests += 1
        if origin.step_budget_us is not None and origin.step_budget_us < replica.guests_us:
            replica.guests_us = origin.step_budget_us
        self.book(replica, step_us, structured)

    def release_guest(self, replica: Replica, step_us: float = 0.0, structured: bool = False) -> None:
        """A request of another pool is over."""
        replica.guests -= 1
        if not replica.guests:
            replica.guests_us = math.inf
        self.release(replica, step_us, structured)

    def set_step_budget(self, step_budget_us: float | None) -> None:
        """Change the budget while requests run; what has been admitted stays."""
        self.step_budget_us = step_budget_us
        if self.on_room is not None:
            for replica in self.replicas:
                if self.wanted and replica.available:
                    self.on_room(replica)

    def _place(self, replica: Replica) -> None:
        """Give a replica a place, and count it if it is available. Raises ValueError where it has one."""
        replica.watch(self._changed, self._rested)
        if self._free:
            at = self._free.pop()
            self._slots[at] = replica
        else:
            at = len(self._slots)
            self._slots.append(replica)
        replica.at = at
        replica.bit = 1 << at
        if replica.available:
            self._enter(replica)
        if replica.resting:
            self.resting += 1

    def _available_now(self) -> list[Replica]:
        """The available replicas in their order; kept until one comes or goes."""
        ready = self._ready
        if ready is None:
            ready = self._ready = [each for each in self.replicas if each.available]
        return ready

    def _took_trial(self, replica: Replica) -> None:
        replica.take_trial()
        if self.on_trial is not None:
            self.on_trial(replica)

    def _changed(self, replica: Replica) -> None:
        if replica.available:
            self._enter(replica)
            if self.wanted and self.on_room is not None:
                self.on_room(replica)
        else:
            self._leave(replica)
            if not self._available:
                self._end_warming()
            self._check_empty()

    def _end_warming(self) -> None:
        """Nobody else takes requests: better a cold replica than none."""
        for replica in self.replicas:
            if replica.warming:
                replica.warm(False)

    def _rested(self, replica: Replica) -> None:
        if replica.resting:
            self.resting += 1
        else:
            self.resting -= 1
            self._check_empty()

    def _check_empty(self) -> None:
        if not self._available and not self.resting and self.on_empty is not None:
            self.on_empty()

    def _enter(self, replica: Replica) -> None:
        self._ready = None
        level = replica.in_flight
        levels = self._levels
        while len(levels) <= level:
            levels.append(0)
        levels[level] |= replica.bit
        if not self._available or level < self._lowest:
            self._lowest = level
        self._available += 1

    def _leave(self, replica: Replica) -> None:
        self._ready = None
        self._levels[replica.in_flight] ^= replica.bit
        self._available -= 1
        if self._available:
            while not self._levels[self._lowest]:
                self._lowest += 1
