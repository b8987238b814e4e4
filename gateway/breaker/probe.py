"""One probe: a request in quarantine, watched to find out whether its signature may come back.

Judged on what it really cost, against the limits of the pool in which the signature tripped. Nothing seen is no good
sign: without a feed it is unclear, unless what brought the signature here can be judged by the answer alone.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.breaker.policy import BreakerPolicy, Limits
from gateway.breaker.record import BreakerRecord, State
from gateway.breaker.trip import Cause, Trip


class Judgement(StrEnum):
    """What came of a probe."""

    good = "good"
    bad = "bad"
    unclear = "unclear"


@dataclass(slots=True)
class Probe:
    """A running probe. Clock readings in seconds.

    asked_by:  the half-open record that wanted it.
    steps:     seen of it, by steps or roll-ups.
    unrolled:  of them, steps that the next roll-up will tell of again.
    over:      steps over the budget, of which `worst_us` is the dearest.
    compiled:  its grammar's compilation was seen.
    ended_s:   when its answer was complete or broke off.
    answered:  the answer was complete and no error.
    watched:   its replica's feed was read all the while, so that what was not seen did not cost anything.
    """

    asked_by: BreakerRecord
    limits: Limits
    began_s: float
    steps: int = 0
    unrolled: int = 0
    over: int = 0
    worst_us: float = 0.0
    compiled: bool = False
    ended_s: float | None = None
    answered: bool = False
    watched: bool = False

    def step(self, own_us: float) -> None:
        """Note a step."""
        self.steps += 1
        self.unrolled += 1
        if self.limits.budget_us is not None and own_us > self.limits.budget_us:
            self.over += 1
            self.worst_us = max(self.worst_us, own_us)

    def roll_up(self, steps: int) -> None:
        """Note that it took so many steps since the last time, those that were noted one by one among them."""
        self.steps += max(0, steps - self.unrolled)
        self.unrolled = 0

    def is_over(self, now_s: float, policy: BreakerPolicy) -> bool:
        """Whether it can be judged: it has ended and all was told of it, or it has had its time."""
        if now_s - self.began_s >= policy.probing.longest_s:
            return True
        return self.ended_s is not None and now_s - self.ended_s >= policy.probing.settle_s

    def judgement(self) -> Judgement:
        """Of a probe that was not bad."""
        broke_off = self.ended_s is not None and not self.answered
        if broke_off:
            return Judgement.unclear
        trip = self.asked_by.trip
        cause = trip.cause if trip is not None else None
        if cause is Cause.crash:
            enough = True  # the replica lives
        elif cause is Cause.compile:
            enough = self.compiled  # else the grammar was still cached, which says nothing
        elif cause is Cause.slope and trip is not None:
            enough = self.steps >= trip.count or (self.watched and self.steps == 0)
        else:
            # A request of a few tokens never has the steps that would be bad: what half of them say is enough to doubt.
            mostly_over = self.over * 2 >= self.steps > 0
            enough = not mostly_over and (self.steps > 0 or self.compiled or self.watched)
        return Judgement.good if enough else Judgement.unclear

    def is_of(self, record: BreakerRecord) -> bool:
        """Whether the record, of its signature, is still the one that waits for it."""
        return record.state is State.half_open and (record.since, record.probes) == (
            self.asked_by.since,
            self.asked_by.probes,
        )

    def held_to_its_pool(self, trip: Trip) -> Trip:
        """A trip of the probe itself, in terms of the pool where its like want to go."""
        last, limits = self.asked_by.trip, self.limits
        return replace(
            trip,
            pool=last.pool if last is not None else "",
            budget_us=limits.budget_us,
            hard_limit_us=limits.hard_limit_us,
            compile_limit_ms=limits.compile_ms,
        )


class Probes:
    """The probes that this gateway runs: one at a time of each signature."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._by_request: dict[str, Probe] = {}
        self._request_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_request)

    def reconfigure(self, policy: BreakerPolicy) -> None:
        """Judge by another policy, those that run among them."""
        self._policy = policy

    def begin(self, record: BreakerRecord, request_id: str, now_s: float) -> bool:
        """This request is the next probe of a half-open signature; False when another one is."""
        if record.key in self._request_of or request_id in self._by_request:
            return False
        trip, limits = record.trip, self._policy.manual_limits
        if trip is not None:
            limits = Limits(trip.budget_us, trip.hard_limit_us, trip.compile_limit_ms)
        self._by_request[request_id] = Probe(record, limits, now_s)
        self._request_of[record.key] = request_id
        return True

    def runs(self, signature: str) -> bool:
        """Whether one of this signature runs."""
        return signature in self._request_of

    def find(self, request_id: str) -> Probe | None:
        """The probe that this request is, if it is one."""
        return self._by_request.get(request_id)

    def end(self, request_id: str) -> None:
        """It has been judged."""
        probe = self._by_request.pop(request_id)
        del self._request_of[probe.asked_by.key]

    def over(self, now_s: float) -> list[tuple[str, Probe]]:
        """Request id and probe of those that can be judged now."""
        policy = self._policy
        return [(rid, probe) for rid, probe in self._by_request.items() if probe.is_over(now_s, policy)]
