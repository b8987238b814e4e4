"""`/api/v1/quarantine` and `/api/v1/audit`: what is barred and why, and the operator's hand on it.

A key is a cost signature or a tenant's name; where it could be either, `?kind=` says which.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from aiohttp import web
from pydantic import AfterValidator, BeforeValidator, StringConstraints, model_validator

from gateway.breaker.record import BREAKER, BreakerRecord, Kind, State
from gateway.control.api.costs import cost_document
from gateway.control.api.record import record_document
from gateway.control.api.reply import ApiError, body_of, count_of, instant, json_reply
from gateway.control.api.state import store_document
from gateway.control.context import AdminContext
from gateway.control.inturns import giving_way
from gateway.control.part import Part, Seconds
from gateway.control.validation import custom_error
from gateway.feed.running import Running
from gateway.hookcost.signature import is_signature

_LISTED = 100
_MOST = 1000
_LONGEST_TEXT = 500
_LONGEST_WAIT_S = 366 * 86_400.0


def _checked_signature(value: object) -> object:
    if value is not None and not (isinstance(value, str) and is_signature(value)):
        raise custom_error("a cost signature, such as s1-0123456789abcdef", "`steplane explain` prints a request's")
    return value


def _checked_text(value: object) -> object:
    if not isinstance(value, str) or not value.strip():
        raise custom_error("some text", "it goes into the audit log")
    if len(value) > _LONGEST_TEXT:
        raise custom_error(f"text of at most {_LONGEST_TEXT} characters")
    return value.strip()


def _checked_author(author: str) -> str:
    if author == BREAKER:
        raise custom_error("the name of a person", f"{BREAKER!r} is what trips by itself")
    return author


Signature = Annotated[str, BeforeValidator(_checked_signature)]
Tenant = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Said = Annotated[str, BeforeValidator(_checked_text)]
Author = Annotated[Said, AfterValidator(_checked_author)]


class ByHand(Part):
    """Who does something by hand, and why."""

    author: Author
    reason: Said


class AddBody(ByHand):
    """Quarantine one signature or tenant.

    wait_s: seconds until it is tried again, or a tenant let go; None: as long as after a trip.
    pin:    until somebody releases it.
    """

    signature: Signature | None = None
    tenant: Tenant | None = None
    wait_s: Seconds | None = None
    pin: bool = False

    @model_validator(mode="after")
    def _of_one(self) -> "AddBody":
        if (self.signature is None) == (self.tenant is None):
            raise custom_error("either a signature or a tenant")
        if self.pin and self.wait_s is not None:
            raise custom_error("either wait_s or pin", "what is pinned stays until somebody releases it")
        if self.wait_s is not None and self.wait_s > _LONGEST_WAIT_S:
            raise custom_error(f"a wait_s of at most {_LONGEST_WAIT_S:.0f}", "pin it for longer")
        return self


@dataclass(frozen=True, slots=True)
class QuarantineApi:
    """Reads and writes."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [
            web.get("/api/v1/quarantine", self.all),
            web.post("/api/v1/quarantine", self.add),
            web.get("/api/v1/quarantine/{key}", self.show),
            web.post("/api/v1/quarantine/{key}/release", self.release),
            web.get("/api/v1/audit", self.audit),
        ]

    async def all(self, request: web.Request) -> web.Response:
        """Everything that is barred, newest first."""
        limit = count_of(request, "limit", _LISTED, _MOST)
        records = self.context.trust.snapshot()
        listed = [record_document(record) async for record in giving_way(records[:limit])]
        return json_reply(
            {
                "now": instant(self.context.wall()),
                "quarantine_pool": self.context.config.quarantine_pool,
                "total": len(records),
                "by_state": Counter(record.state.value for record in records),
                "quarantined": listed,
            }
        )

    async def show(self, request: web.Request) -> web.Response:
        """One signature or tenant: its breaker, what it costs, what runs of it, and what was done to it."""
        context = self.context
        kind, key = self._asked(request)
        record = context.trust.record(kind, key)
        running = self._running(kind, key)
        audit = [asdict(entry) | {"at": instant(entry.at)} for entry in context.trust.audit.entries(key)]
        entry = context.book.entry(key) if kind is Kind.signature else None
        if record is None and entry is None and not running and not audit:
            raise ApiError(
                404, "unknown", f"nothing is known of {key!r}: it is not quarantined, and none of it has run"
            )
        return json_reply(
            {
                "now": instant(context.wall()),
                "record": record_document(record or BreakerRecord(kind, key)),
                "observed": None if entry is None else cost_document(context, entry),
                "running": running,
                "audit": audit,
            }
        )

    async def add(self, request: web.Request) -> web.Response:
        """Quarantine by hand."""
        body = await body_of(request, AddBody)
        trust = self.context.trust
        kind = Kind.tenant if body.signature is None else Kind.signature
        key = body.signature or body.tenant or ""
        before = trust.record(kind, key)
        if not body.pin and before is not None and before.state is State.pinned:
            message = f"{kind.value} {key!r} is pinned by {before.author} ({before.reason}): release it first"
            raise ApiError(409, "pinned", message)
        running = len(self._running(kind, key))
        try:
            if body.pin:
                record = trust.pin(kind, key, body.author, body.reason)
            else:
                record = trust.add(kind, key, body.author, body.reason, body.wait_s)
        except ValueError as error:
            raise ApiError(409, "not_possible", str(error)) from None
        is_new = before is None or before.state is State.closed
        return self._done(record, 201 if is_new else 200, running=running)

    async def release(self, request: web.Request) -> web.Response:
        """Let go by hand."""
        kind, key = self._asked(request)
        body = await body_of(request, ByHand)
        trust = self.context.trust
        before = trust.record(kind, key)
        if before is None or before.state is State.closed:
            raise ApiError(404, "not_quarantined", f"{kind.value} {key!r} is not quarantined")
        try:
            record = trust.release(kind, key, body.author, body.reason)
        except ValueError as error:
            raise ApiError(409, "not_possible", str(error)) from None
        return self._done(record, 200)

    async def audit(self, request: web.Request) -> web.Response:
        """Who did what to which breaker, newest first; `?key=` of one."""
        limit = count_of(request, "limit", _LISTED, _MOST)
        entries = self.context.trust.audit.entries(request.query.get("key"))
        shown = [asdict(entry) | {"at": instant(entry.at)} for entry in entries[:limit]]
        return json_reply({"now": instant(self.context.wall()), "total": len(entries), "entries": shown})

    def _done(self, record: BreakerRecord, status: int, **more: object) -> web.Response:
        document = {"now": instant(self.context.wall()), "record": record_document(record), **more}
        return json_reply(document | {"store": store_document(self.context)}, status=status)

    def _asked(self, request: web.Request) -> tuple[Kind, str]:
        """What the path means: what is barred under the key, or else what it looks like."""
        key, wanted = request.match_info["key"], request.query.get("kind")
        if wanted is not None:
            if wanted not in tuple(Kind):
                message = f"kind: expected {' or '.join(Kind)}, found {wanted[:40]!r}"
                raise ApiError(400, "invalid_query", message)
            return Kind(wanted), key
        trust = self.context.trust
        for kind, barred in ((Kind.signature, trust.barred_signatures), (Kind.tenant, trust.barred_tenants)):
            if key in barred:
                return kind, key
        return (Kind.signature if is_signature(key) else Kind.tenant), key

    def _running(self, kind: Kind, key: str) -> list[dict[str, Any]]:
        running, now_s = self.context.running, self.context.clock()
        found = running.of_signature(key) if kind is Kind.signature else running.of_tenant(key)
        return [_running_document(attempt, now_s) for _, attempt in found]


def _running_document(attempt: Running, now_s: float) -> dict[str, Any]:
    origin = attempt.origin
    return {
        "request_id": origin.request_id,
        "tenant": origin.tenant,
        "pool": origin.pool,
        "replica": origin.replica,
        "runs_s": round(now_s - attempt.received_s, 3),
    }
