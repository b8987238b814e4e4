"""The table: what leads from one state to another, and what does not."""

from dataclasses import replace

import pytest

from gateway.breaker.policy import BackOff, BreakerPolicy
from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.breaker.transitions import TABLES, Event, Happening, Publish, after, remembered_trips, row_of
from gateway.breaker.trip import Cause, Trip

POLICY = BreakerPolicy()
TRIP = Trip(Cause.hard_limit, 2e5, 1e5, "us", at=1000.0)
CLOSED = BreakerRecord(Kind.signature, "s1-a")

# One letter for each state that the event leads to, from closed, open, half-open and pinned; `.`: nothing changes.
SIGNATURE = {
    Event.trip: "o...",
    Event.wait_over: ".h..",
    Event.probe_good: "..h.",
    Event.probe_unclear: "..h.",
    Event.probe_bad: "..o.",
    Event.recovered: "..c.",
    Event.unasked: "..c.",
    Event.let_go: ".cc.",
    Event.add: "ooo.",
    Event.pin: "pppp",
    Event.release: "cccc",
}
TENANT = {
    Event.trip: "o...",
    Event.wait_over: ".c..",
    Event.let_go: ".c..",
    Event.add: "ooo.",
    Event.pin: "pppp",
    Event.release: "cccc",
}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("event", Event)
def test_each_event_leads_where_the_table_says(kind: Kind, event: Event) -> None:
    table = SIGNATURE if kind is Kind.signature else TENANT
    rows = [row_of(replace(CLOSED, kind=kind, state=state), event) for state in State]

    assert "".join("." if row is None else row.to.value[0] for row in rows) == table.get(event, "....")


def test_what_protects_or_was_asked_for_is_forced_and_the_rest_is_not() -> None:
    for table in TABLES.values():
        for (_, event), row in table.items():
            forced = event in {Event.trip, Event.probe_bad, Event.add, Event.pin, Event.release}
            assert (row.publish is Publish.force) is forced


def happened(record: BreakerRecord, event: Event, at: float, **more: object) -> BreakerRecord:
    row = row_of(record, event)
    assert row is not None
    return after(record, row, Happening(event, at, **more), POLICY)  # type: ignore[arg-type]


def test_each_further_trip_waits_longer_up_to_a_maximum() -> None:
    record, waits, at = CLOSED, [], 0.0
    for _ in range(10):
        record = happened(record, Event.trip, at, trip=TRIP)
        waits.append(record.until - at)
        record = happened(record, Event.wait_over, record.until)
        at = record.since
        record = happened(record, Event.recovered, at)

    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert BackOff().wait_s(10**9) == 3600


def test_a_bad_probe_waits_longer_than_the_trip_before() -> None:
    record = happened(CLOSED, Event.trip, 0.0, trip=TRIP)
    record = happened(record, Event.wait_over, 30.0)
    record = happened(record, Event.probe_bad, 35.0, trip=replace(TRIP, observed=3e5))

    assert (record.state, record.trips, record.until, record.trip.observed) == (State.open, 2, 95.0, 3e5)


@pytest.mark.parametrize(
    ("closed_for_s", "remembered"), [(0, 3), (1799, 3), (1800, 2), (3600, 1), (5400, 0), (1e9, 0), (-50, 3)]
)
def test_good_behaviour_takes_trips_back(closed_for_s: float, remembered: int) -> None:
    record = replace(CLOSED, trips=3, since=1e6)

    assert remembered_trips(record, 1e6 + closed_for_s, POLICY) == remembered
    tripped = happened(record, Event.trip, 1e6 + closed_for_s, trip=TRIP)
    assert tripped.trips == remembered + 1


def test_only_what_is_closed_behaves_well() -> None:
    assert remembered_trips(replace(CLOSED, state=State.open, trips=3), 1e9, POLICY) == 3


def test_probes_are_numbered_and_spaced_ever_wider() -> None:
    record = happened(happened(CLOSED, Event.trip, 0.0, trip=TRIP), Event.wait_over, 30.0)
    assert (record.probes, record.next_probe) == (0, 30.0)

    record = happened(record, Event.probe_good, 31.0)
    assert (record.probes, record.good_probes, record.next_probe) == (1, 1, 31.0 + 4.0)
    record = happened(record, Event.probe_unclear, 40.0)
    assert (record.probes, record.good_probes, record.next_probe) == (2, 1, 40.0 + 4.0)
    record = happened(record, Event.probe_good, 50.0)
    assert (record.probes, record.good_probes, record.next_probe) == (3, 2, 50.0 + 8.0)
    assert record.since == 30.0


def test_a_state_keeps_nothing_that_belongs_to_another() -> None:
    record = happened(happened(CLOSED, Event.trip, 0.0, trip=TRIP), Event.wait_over, 30.0)
    record = happened(record, Event.probe_good, 31.0)
    closed = happened(record, Event.recovered, 40.0)

    assert (closed.until, closed.next_probe, closed.probes, closed.good_probes) == (None, None, 0, 0)
    assert (closed.trips, closed.trip, closed.since) == (1, TRIP, 40.0)


def test_a_release_forgets_and_says_who_did_it() -> None:
    record = happened(CLOSED, Event.trip, 0.0, trip=TRIP)
    record = happened(record, Event.release, 5.0, author="kim", reason="fixed in 1.2")

    assert (record.state, record.trips, record.trip) == (State.closed, 0, None)
    assert (record.author, record.reason, record.since) == ("kim", "fixed in 1.2", 5.0)


def test_a_pin_keeps_what_was_observed() -> None:
    record = happened(happened(CLOSED, Event.trip, 0.0, trip=TRIP), Event.pin, 5.0, author="kim", reason="again")

    assert (record.state, record.until, record.trip, record.author) == (State.pinned, None, TRIP, "kim")


def test_added_for_a_time_it_lasts_for_that_time() -> None:
    record = happened(CLOSED, Event.add, 5.0, author="kim", reason="storm", wait_s=600.0)
    assert (record.state, record.until, record.trips) == (State.open, 605.0, 0)

    record = happened(record, Event.add, 50.0, author="lee", reason="still")
    assert (record.since, record.until, record.author) == (50.0, 80.0, "lee")


@pytest.mark.parametrize(
    "record",
    [
        CLOSED,
        replace(CLOSED, state=State.open, since=1.1, until=31.1, trips=7, trip=TRIP),
        replace(CLOSED, kind=Kind.tenant, key="müller & söhne", state=State.pinned, author="kim", reason="weil\n"),
        replace(CLOSED, state=State.half_open, probes=5, good_probes=2, next_probe=0.1 + 0.2),
        replace(
            CLOSED,
            trip=Trip(Cause.compile, 9.9, 5.0, "ms", 1e9 / 3, 2, 10.0, "stop", "t", "p", "r", "q", 1.0, None, 5.0),
        ),
    ],
)
def test_a_record_survives_the_way_to_another_gateway(record: BreakerRecord) -> None:
    assert BreakerRecord.from_bytes(record.to_bytes()) == record


def test_a_record_of_a_later_version_with_more_in_it_is_read() -> None:
    value = CLOSED.to_bytes().replace(b'{"kind"', b'{"colour":"red","kind"')

    assert BreakerRecord.from_bytes(value) == CLOSED


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"null", b"{}", b'"x"', CLOSED.to_bytes()[:-3], CLOSED.to_bytes().replace(b"closed", b"ajar")]
)
def test_what_is_no_record_is_refused_by_saying_so(value: bytes) -> None:
    with pytest.raises(ValueError, match="no breaker record"):
        BreakerRecord.from_bytes(value)
