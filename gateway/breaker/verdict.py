"""The answer of the breaker to a request that must not go where the rules would send it."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gateway.breaker.advice import advice_on, said_of
from gateway.breaker.record import BreakerRecord, Kind, State


@dataclass(frozen=True, slots=True)
class ProbeOffer:
    """This request may be a probe, if a lease on `lease_key` is granted for `ttl_s` seconds.

    Hand `signature` and the request's id to `Trust.probe_leased` then. Without a lease the request runs in quarantine
    like any other, and nobody judges it.
    """

    signature: str
    lease_key: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Quarantined. `record` is of the signature, or of the tenant; `retry_after_s` goes into `Retry-After`."""

    record: BreakerRecord
    retry_after_s: int
    probe: ProbeOffer | None = None

    @property
    def message(self) -> str:
        """For the client: what is quarantined, why, until when, and what would help."""
        record, trip = self.record, self.record.trip
        what = f"requests of tenant {record.key!r} that ask for hook work" if record.kind is Kind.tenant else None
        what = what or f"requests of this kind (cost signature {record.key})"
        if trip is None:
            # Who it was is for the audit log, not for clients.
            why = "by an operator" + (f": {record.reason}" if record.reason else "")
        else:
            why = said_of(trip)
        until = {
            State.open: f"until {_clock(record.until)} at least",
            State.half_open: "until a few of them, tried one at a time, have stayed within the limits",
            State.pinned: "until an operator releases them",
            State.closed: "no more",
        }[record.state]
        return f"{what} are quarantined since {_clock(record.since)}, {until}: {why}. To fix it: {advice_on(trip)}."

    def document(self) -> dict[str, Any]:
        """The same for programs: goes into the error body. Times are ISO 8601, UTC."""
        record, trip = self.record, self.record.trip
        document: dict[str, Any] = {
            record.kind.value: record.key,
            "state": record.state.value,
            "since": _clock(record.since),
            "until": _clock(record.until),
            "retry_after_s": self.retry_after_s,
            "trips": record.trips,
            "advice": advice_on(trip),
        }
        if trip is None:
            return document | {"cause": "manual", "reason": record.reason}
        over = {
            "cause": trip.cause.value,
            "observed": round(trip.observed, 3),
            "limit": round(trip.limit, 3),
            "unit": trip.unit,
            "times_over": round(trip.observed / trip.limit, 3) if trip.limit > 0 else None,
            "count": trip.count,
            "window_s": trip.window_s,
            "hook": trip.hook,
            "pool": trip.pool,
        }
        return document | over


def seconds(wait_s: float) -> int:
    """Whole seconds for `Retry-After`, at least one."""
    return max(1, math.ceil(wait_s))


def _clock(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
