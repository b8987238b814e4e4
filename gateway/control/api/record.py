"""How a breaker is shown, on every page alike."""

from dataclasses import asdict
from typing import Any

from gateway.breaker.advice import advice_on, said_of
from gateway.breaker.record import BreakerRecord, State
from gateway.breaker.trip import Trip
from gateway.control.api.reply import instant


def record_document(record: BreakerRecord) -> dict[str, Any]:
    """A breaker for people and programs: times in ISO 8601, the figures of its trip, and both in sentences."""
    trip = record.trip
    if trip is not None:
        why = said_of(trip)
    else:
        why = "" if record.state is State.closed else record.reason
    return {
        "kind": record.kind.value,
        "key": record.key,
        "state": record.state.value,
        "since": instant(record.since) if record.since else None,
        "until": instant(record.until),
        "cause": trip.cause.value if trip is not None else None if record.state is State.closed else "manual",
        "why": why,
        "advice": None if trip is None else advice_on(trip),
        "author": record.author,
        "reason": record.reason,
        "tenant": trip.tenant if trip is not None else None,
        "pool": trip.pool if trip is not None else None,
        "trips": record.trips,
        "probes": record.probes,
        "good_probes": record.good_probes,
        "next_probe": instant(record.next_probe),
        "trip": None if trip is None else _trip_document(trip),
    }


def _trip_document(trip: Trip) -> dict[str, Any]:
    times_over = round(trip.observed / trip.limit, 3) if trip.limit > 0 else None
    return asdict(trip) | {"at": instant(trip.at), "times_over": times_over}
