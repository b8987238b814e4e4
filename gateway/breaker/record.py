"""The state of one breaker, in the form in which gateways exchange it: its times are wall clock, which they share."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from gateway.breaker.trip import Cause, Trip

BREAKER = "breaker"
"""Author of what no person did."""


class Kind(StrEnum):
    """What a breaker is about."""

    signature = "signature"
    tenant = "tenant"


class State(StrEnum):
    """Where a breaker stands; what leads from one to the other is in `transitions.py`."""

    closed = "closed"
    open = "open"
    half_open = "half_open"
    pinned = "pinned"


@dataclass(frozen=True, slots=True)
class BreakerRecord:
    """One breaker. Times are seconds of the wall clock.

    since:      when this state began.
    until:      when an open one becomes half-open (a tenant's: closes); None in other states.
    trips:      openings that are remembered: the next one waits the longer.
    trip:       why it opened last; None when a person did it.
    probes:     probes since it became half-open; names the next one, so that only one gateway runs it.
    good_probes: of them.
    next_probe: from when on the next one may run; None unless half-open.
    author:     who did it: `breaker` or a person.
    reason:     that the person gave.
    """

    kind: Kind
    key: str
    state: State = State.closed
    since: float = 0.0
    until: float | None = None
    trips: int = 0
    trip: Trip | None = None
    probes: int = 0
    good_probes: int = 0
    next_probe: float | None = None
    author: str = BREAKER
    reason: str = ""

    def to_bytes(self) -> bytes:
        """JSON, one object."""
        return orjson.dumps(self)

    @classmethod
    def from_bytes(cls, value: bytes) -> "BreakerRecord":
        """What `to_bytes` of this version, or of a later one with more fields, wrote.

        Raises:
            ValueError: it is something else; the message says what.
        """
        try:
            data = orjson.loads(value)
            trip = data.get("trip")
            return cls(
                kind=Kind(data["kind"]),
                key=_text(data["key"]),
                state=State(data["state"]),
                since=float(data["since"]),
                until=_number(data["until"]),
                trips=int(data["trips"]),
                trip=None if trip is None else _trip(trip),
                probes=int(data["probes"]),
                good_probes=int(data["good_probes"]),
                next_probe=_number(data["next_probe"]),
                author=_text(data["author"]),
                reason=_text(data["reason"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"no breaker record: {said} in {value[:200]!r}") from error


def _trip(data: dict[str, Any]) -> Trip:
    return Trip(
        cause=Cause(data["cause"]),
        observed=float(data["observed"]),
        limit=float(data["limit"]),
        unit=_text(data["unit"]),
        at=float(data["at"]),
        count=int(data["count"]),
        window_s=float(data["window_s"]),
        hook=None if data["hook"] is None else _text(data["hook"]),
        tenant=_text(data["tenant"]),
        pool=_text(data["pool"]),
        replica=_text(data["replica"]),
        request_id=_text(data["request_id"]),
        budget_us=_number(data["budget_us"]),
        hard_limit_us=_number(data["hard_limit_us"]),
        compile_limit_ms=_number(data["compile_limit_ms"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
