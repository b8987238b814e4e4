"""The states of a replica's breaker, and every transition between them, as a table. Data alone."""

from dataclasses import dataclass
from enum import StrEnum


class ReplicaState(StrEnum):
    """Closed: takes requests. Open: takes none. Half-open: takes a few."""

    closed = "closed"
    open = "open"
    half_open = "half_open"


class Event(StrEnum):
    """What can happen to a replica's breaker."""

    sick = "sick"
    """One of the signs, or a trial that failed or was lost."""
    served = "served"
    """The time out is over."""
    recovered = "recovered"
    """Trials went well, or nothing spoke against it any more."""
    needed = "needed"
    """Nothing else of the pool would be left."""
    answered = "answered"
    """A trial ended that decides nothing: another may be sent."""


TABLE: dict[tuple[ReplicaState, Event], ReplicaState] = {
    (ReplicaState.closed, Event.sick): ReplicaState.open,
    (ReplicaState.open, Event.served): ReplicaState.half_open,
    (ReplicaState.open, Event.needed): ReplicaState.closed,
    (ReplicaState.half_open, Event.sick): ReplicaState.open,
    (ReplicaState.half_open, Event.answered): ReplicaState.half_open,
    (ReplicaState.half_open, Event.recovered): ReplicaState.closed,
    (ReplicaState.half_open, Event.needed): ReplicaState.closed,
}
"""Every transition there is. What is missing does not happen: a sick replica that is open already stays so."""


class Sign(StrEnum):
    """By what a replica was found to be sick."""

    faults_in_a_row = "faults_in_a_row"
    error_rate = "error_rate"
    slow_first_byte = "slow_first_byte"
    slow_steps = "slow_steps"
    silence = "silence"
    trial_failed = "trial_failed"
    trial_lost = "trial_lost"
    by_hand = "by_hand"


@dataclass(frozen=True, slots=True)
class ReplicaTransition:
    """A change of one replica's breaker, for whoever acts on it, logs and counts it.

    reason:  for people: what was seen, with figures.
    sign:    by what it was found to be sick; None for any other event.
    until_s: reading of the breaker's clock when the time out ends; None unless `after` is open.
    trials:  how many more requests it may be sent now; 0 unless `after` is half-open.
    """

    pool: str
    replica: str
    before: ReplicaState
    after: ReplicaState
    event: Event
    reason: str
    sign: Sign | None = None
    until_s: float | None = None
    trials: int = 0
