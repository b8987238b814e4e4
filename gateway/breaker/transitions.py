"""Every transition of a breaker, as a table. What is not in the table changes nothing.

Theory. A breaker is closed: its signature goes where the rules send it. A trip opens it: the signature goes to
quarantine, for longer with each trip that is remembered. When the wait is over it is half-open: still in quarantine,
but single requests are probes, watched against the limits of the pool in which it tripped. Enough good ones in a row
close it; a bad one opens it again, for longer; one that nobody could watch counts for neither. A person may quarantine
for a time (add), until somebody takes it back (pin), or let go at once (release), which also forgets what was.

A tenant's breaker has no probes: its requests are of many signatures, whose own breakers probe. It closes when its
wait is over, and the next escalation waits longer.

Two rules of this file: a row depends on nothing but state and event, and only rows that make somebody safer, or that a
person asked for, are forced upon the other gateways. The others are told if nothing has happened there meanwhile.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.record import BREAKER, BreakerRecord, Kind, State
from gateway.breaker.trip import Trip


class Event(StrEnum):
    """What can happen to a breaker."""

    trip = "trip"
    """Evidence of a request outside quarantine is enough."""
    wait_over = "wait_over"
    """It has been open for as long as it should."""
    probe_good = "probe_good"
    """A probe was watched to its end and stayed within the limits."""
    probe_unclear = "probe_unclear"
    """A probe ended, or broke off, and nobody could say what it cost."""
    probe_bad = "probe_bad"
    """A probe was over a limit, or its replica died."""
    recovered = "recovered"
    """The last good probe that was needed."""
    unasked = "unasked"
    """Half-open for long, and nobody has asked for the signature."""
    let_go = "let_go"
    """Too many are quarantined, and nobody has asked for this one for longest."""
    add = "add"
    """A person quarantines it for a time."""
    pin = "pin"
    """A person quarantines it until somebody releases it."""
    release = "release"
    """A person lets it go."""


class Publish(StrEnum):
    """How the other gateways are told of a transition.

    force:   on top of whatever they have.
    advance: only if they have what this one began from.
    none:    not at all: it came from them, or is our own affair.
    """

    force = "force"
    advance = "advance"
    none = "none"


@dataclass(frozen=True, slots=True)
class Happening:
    """An event with its circumstances. `at`: wall clock. `wait_s`: how long a person wants it; None: as a trip does."""

    event: Event
    at: float
    trip: Trip | None = None
    author: str = BREAKER
    reason: str = ""
    wait_s: float | None = None


Effect = Callable[[BreakerRecord, Happening, BreakerPolicy], BreakerRecord]


@dataclass(frozen=True, slots=True)
class Row:
    """One transition: the state that it leads to, how others are told, and what it does besides."""

    to: State
    publish: Publish
    does: tuple[Effect, ...] = ()


# --- what a row may do


def count_trip(record: BreakerRecord, happening: Happening, policy: BreakerPolicy) -> BreakerRecord:
    """One more trip than are remembered, and why. A bad probe without a trip of its own keeps the old reason."""
    trips = remembered_trips(record, happening.at, policy) + 1
    return replace(record, trips=trips, trip=happening.trip or record.trip)


def wait(record: BreakerRecord, happening: Happening, policy: BreakerPolicy) -> BreakerRecord:
    """Open for as long as its trips say, or as a person said."""
    wait_s = policy.back_off.wait_s(record.trips) if happening.wait_s is None else happening.wait_s
    return replace(record, until=happening.at + wait_s)


def probe_from_now(record: BreakerRecord, happening: Happening, _: BreakerPolicy) -> BreakerRecord:
    """The next request may be the first probe."""
    return replace(record, probes=0, good_probes=0, next_probe=happening.at)


def count_probe(record: BreakerRecord, _: Happening, __: BreakerPolicy) -> BreakerRecord:
    """One more probe has been."""
    return replace(record, probes=record.probes + 1)


def count_good_probe(record: BreakerRecord, _: Happening, __: BreakerPolicy) -> BreakerRecord:
    """And it was good."""
    return replace(record, good_probes=record.good_probes + 1)


def space_probes(record: BreakerRecord, happening: Happening, policy: BreakerPolicy) -> BreakerRecord:
    """The next probe comes after an interval that grows with the good ones."""
    return replace(record, next_probe=happening.at + policy.probing.interval_s(record.good_probes))


def forget_reason(record: BreakerRecord, _: Happening, __: BreakerPolicy) -> BreakerRecord:
    """A person's reason takes the place of what was observed."""
    return replace(record, trip=None)


def forget_trips(record: BreakerRecord, _: Happening, __: BreakerPolicy) -> BreakerRecord:
    """As if nothing had been."""
    return replace(record, trips=0, trip=None)


# --- the tables

_BY_HAND: Mapping[tuple[State, Event], Row] = {
    # state            event               leads to      told             and does
    (State.closed, Event.add): Row(State.open, Publish.force, (forget_reason, wait)),
    (State.open, Event.add): Row(State.open, Publish.force, (wait,)),
    (State.half_open, Event.add): Row(State.open, Publish.force, (wait,)),
    (State.closed, Event.pin): Row(State.pinned, Publish.force, (forget_reason,)),
    (State.open, Event.pin): Row(State.pinned, Publish.force),
    (State.half_open, Event.pin): Row(State.pinned, Publish.force),
    (State.pinned, Event.pin): Row(State.pinned, Publish.force),
    (State.closed, Event.release): Row(State.closed, Publish.force, (forget_trips,)),
    (State.open, Event.release): Row(State.closed, Publish.force, (forget_trips,)),
    (State.half_open, Event.release): Row(State.closed, Publish.force, (forget_trips,)),
    (State.pinned, Event.release): Row(State.closed, Publish.force, (forget_trips,)),
}

SIGNATURE: Mapping[tuple[State, Event], Row] = {
    **_BY_HAND,
    # state            event                        leads to        told             and does
    (State.closed, Event.trip): Row(State.open, Publish.force, (count_trip, wait)),
    (State.open, Event.wait_over): Row(State.half_open, Publish.advance, (probe_from_now,)),
    (State.half_open, Event.probe_good): Row(
        State.half_open, Publish.advance, (count_probe, count_good_probe, space_probes)
    ),
    (State.half_open, Event.probe_unclear): Row(State.half_open, Publish.advance, (count_probe, space_probes)),
    (State.half_open, Event.probe_bad): Row(State.open, Publish.force, (count_trip, wait)),
    (State.half_open, Event.recovered): Row(State.closed, Publish.advance),
    (State.half_open, Event.unasked): Row(State.closed, Publish.advance),
    (State.open, Event.let_go): Row(State.closed, Publish.none),
    (State.half_open, Event.let_go): Row(State.closed, Publish.none),
}

TENANT: Mapping[tuple[State, Event], Row] = {
    **_BY_HAND,
    (State.closed, Event.trip): Row(State.open, Publish.force, (count_trip, wait)),
    (State.open, Event.wait_over): Row(State.closed, Publish.advance),
    (State.open, Event.let_go): Row(State.closed, Publish.none),
}

TABLES: Mapping[Kind, Mapping[tuple[State, Event], Row]] = {Kind.signature: SIGNATURE, Kind.tenant: TENANT}


def row_of(record: BreakerRecord, event: Event) -> Row | None:
    """The row for an event in the record's state; None: it changes nothing."""
    return TABLES[record.kind].get((record.state, event))


def after(record: BreakerRecord, row: Row, happening: Happening, policy: BreakerPolicy) -> BreakerRecord:
    """The record once `row` has been taken."""
    for effect in row.does:
        record = effect(record, happening, policy)
    moved = row.to is not record.state
    person = happening.author != BREAKER
    return replace(
        record,
        state=row.to,
        since=happening.at if moved or person else record.since,
        until=record.until if row.to is State.open else None,
        probes=record.probes if row.to is State.half_open else 0,
        good_probes=record.good_probes if row.to is State.half_open else 0,
        next_probe=record.next_probe if row.to is State.half_open else None,
        author=happening.author if moved or person else record.author,
        reason=happening.reason if moved or person else record.reason,
    )


def remembered_trips(record: BreakerRecord, at: float, policy: BreakerPolicy) -> int:
    """Trips that good behaviour has not taken back by `at` (wall clock): one for each `forgive_s` while closed."""
    if record.state is not State.closed:
        return record.trips
    return max(0, record.trips - int(max(0.0, at - record.since) / policy.back_off.forgive_s))
