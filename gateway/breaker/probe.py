"""One probe: a request in quarantine, watched to find out whether its signature may come back.

Judged on what it really cost, against the limits of the pool in which the signature tripped. Nothing seen is no good
sign: without a feed it is unclear, unless what brought the signature here can be judged by the answer alone.
"""

from dataclasses import dataclass
from enum import StrEnum

from gateway.breaker.policy import BreakerPolicy, Limits
from gateway.breaker.record import BreakerRecord
from gateway.breaker.trip import Cause, Trip
from gateway.hookcost.observation import CompileObservation, StepObservation


class Judgement(StrEnum):
    """What came of a probe."""

    good = "good"
    bad = "bad"
    unclear = "unclear"


@dataclass(slots=True)
class Probe:
    """A running probe of a signature. Clock readings in seconds.

    steps:     seen of it, by steps or roll-ups.
    unrolled:  of them, steps that the next roll-up will tell of again.
    over:      of them over the budget.
    compiled:  its grammar's compilation was seen.
    ended_s:   when its answer was complete or broke off.
    answered:  the answer was complete and no error.
    watched:   its replica's feed was read all the while, so that what was not seen did not cost anything.
    """

    signature: str
    limits: Limits
    trip: Trip | None
    number: int
    began_s: float
    steps: int = 0
    unrolled: int = 0
    over: int = 0
    compiled: bool = False
    ended_s: float | None = None
    answered: bool = False
    watched: bool = False

    def step(self, observation: StepObservation, policy: BreakerPolicy) -> bool:
        """Note a step; True when the probe is bad by it."""
        self.steps += 1
        self.unrolled += 1
        own_us, limits = observation.own_us, self.limits
        if limits.hard_limit_us is not None and own_us > limits.hard_limit_us:
            return True
        if limits.budget_us is not None and own_us > limits.budget_us:
            self.over += 1
            return self.over >= policy.over_budget.steps
        return False

    def roll_up(self, steps: int) -> None:
        """Note that it took so many steps since the last time, those that were noted one by one among them."""
        self.steps += max(0, steps - self.unrolled)
        self.unrolled = 0

    def compile(self, observation: CompileObservation) -> bool:
        """Note a compilation; True when the probe is bad by it."""
        self.compiled = True
        limit_ms = self.limits.compile_ms if self.limits.compile_ms is not None else observation.limit_ms
        return limit_ms is not None and observation.compile_ms > limit_ms

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
        cause = self.trip.cause if self.trip is not None else None
        if cause is Cause.crash:
            enough = True  # the replica lives
        elif cause is Cause.compile:
            enough = self.compiled  # else the grammar was still cached, which says nothing
        elif cause is Cause.slope and self.trip is not None:
            enough = self.steps >= self.trip.count or (self.watched and self.steps == 0)
        else:
            enough = self.steps > 0 or self.compiled or self.watched
        return Judgement.good if enough else Judgement.unclear


def probe_of(record: BreakerRecord, began_s: float, policy: BreakerPolicy) -> Probe:
    """The next probe of a half-open signature."""
    trip = record.trip
    limits = policy.manual_limits
    if trip is not None:
        limits = Limits(trip.budget_us, trip.hard_limit_us, trip.compile_limit_ms)
    return Probe(record.key, limits, trip, record.probes, began_s)
