"""What the gateway knows of one request beyond its bytes: where its kind enters, what it wants, and its attempts.

Data alone, made for every request and attempt; what is done with it is proxy.py's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gateway.breaker.replica import ReplicaBreaker
from gateway.breaker.verdict import Verdict
from gateway.controlpaths import is_control
from gateway.feed.itl import Gaps, ReplicaItl
from gateway.hookcost import api_of
from gateway.hookcost.classification import Classification
from gateway.hookcost.features import Api, Grammar
from gateway.hookcost.observation import Origin
from gateway.models import lists_models
from gateway.routing.actions import Actions
from gateway.routing.admission import AdmissionQueue
from gateway.routing.balance.ask import Ask
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision
from gateway.routing.ticket import Ticket
from gateway.tenants.register import Register
from gateway.wire.exchange import Exchange
from gateway.wire.requesthead import RequestHead
from gateway.wire.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.hedges import Rival
    from gateway.retry.alarms import Alarm
    from gateway.tenantgate import Meter
    from gateway.trace import Trace

_GENERATING_METHODS = frozenset({b"POST", b"PUT"})
"""SGLang takes `PUT /generate`, too. Any other method is the engine's to refuse."""


class Terms:
    """On what terms a pool takes requests, beside its budget.

    on_open:       `quarantine` or `refuse`. on_trip: `rerun`, `end` or `let_finish`. See `PoolBreakerConfig`.
    hard_limit_us: hook time of one request in one step that trips at once; None: any.
    quarantine:    it is the quarantine pool.
    credentials:   the header line that its engines want to be shown instead of a client's own; may be empty.
    """

    __slots__ = ("breaker", "credentials", "hard_limit_us", "on_open", "on_trip", "pool", "quarantine", "queue")

    def __init__(
        self,
        pool: Pool,
        queue: AdmissionQueue,
        breaker: ReplicaBreaker,
        hard_limit_us: float | None,
        on_open: str,
        on_trip: str,
        quarantine: bool,
    ) -> None:
        self.pool = pool
        self.queue = queue
        self.breaker = breaker
        self.hard_limit_us = hard_limit_us
        self.on_open = on_open
        self.on_trip = on_trip
        self.quarantine = quarantine
        self.credentials = b""


class Link:
    """How the data plane reaches a replica, and who is told what came of it."""

    __slots__ = ("answers", "itl", "replica", "response_line", "terms", "upstream")

    def __init__(
        self,
        replica: Replica,
        upstream: Upstream,
        terms: Terms,
        itl: ReplicaItl | None = None,
    ) -> None:
        self.replica = replica
        self.upstream = upstream
        self.terms = terms
        self.answers = terms.breaker.answers_of(replica.name)
        self.itl = itl
        """Set when the senses have begun."""
        self.response_line = b"x-steplane-replica: %b\r\n" % replica.name.encode()

    @property
    def breaker(self) -> ReplicaBreaker:
        """The breaker that the replica's outcomes are told to."""
        return self.terms.breaker

    @property
    def last_read_at(self) -> float:
        """The loop's time when a byte of a response last came."""
        return self.upstream.last_read_at


class Door:
    """What is the same for all requests with one head; kept with it."""

    __slots__ = ("api", "epoch", "generates", "lists_models", "method", "path", "steers", "tenant")

    def __init__(self, head: RequestHead, tenant: str, epoch: int) -> None:
        """`epoch`: of the register that named the tenant."""
        self.epoch = epoch
        self.method = head.method.decode("ascii")
        self.path = head.path
        self.api = api_of(head.path)
        self.generates = head.method in _GENERATING_METHODS and self.api is not Api.other
        self.steers = self.api is Api.other and is_control(head.path)
        self.tenant = tenant
        self.lists_models = lists_models(head.method, head.path)


class Timing:
    """What is to happen to a request at some time; made for those for which something is.

    until_s:  the loop's time when its deadline passes; `deadline` is the alarm for that.
    pause:    until the next attempt. hedge: until a second replica is asked.
    rival:    the attempt at that, while it runs beside the first.
    """

    __slots__ = ("deadline", "hedge", "pause", "rival", "until_s")

    def __init__(self) -> None:
        self.until_s = math.inf
        self.deadline: Alarm | None = None
        self.pause: Alarm | None = None
        self.hedge: Alarm | None = None
        self.rival: Rival | None = None

    def cancel(self) -> None:
        """The request is over: nothing is to happen any more."""
        for alarm in (self.deadline, self.pause, self.hedge):
            if alarm is not None:
                alarm.cancel()


class Edit:
    """A body as a rule has changed it. `line`: the response header that says so."""

    __slots__ = ("actions", "body", "line")

    def __init__(self, actions: Actions, body: bytes, line: bytes) -> None:
        self.actions = actions
        self.body = body
        self.line = line


class Call:
    """One request.

    classification: of the body that is sent; that of `request`, by which rules go, is of the body that came.
    edit:         the body that is sent, where a rule has changed it; None for most.
    engine_id:    the id that engines are given, where they take one.
    costly:       it asks for hook work. What every request costs is no reason to make one wait.
    step_us, structured: what is booked on the replica that it runs on.
    verdict:      why it may not go where the rules say, else None. exiled: it goes to quarantine for what it has done.
    meter:        counts what its tenant is charged for, where that is limited. limit_lines: response header lines that
                  say what the tenant has left.
    offered:      it was offered as the probe of its signature. probes: it is that, and may run where the rules say.
    attempt:      the one that runs, else None. ticket: its place in a queue, else None.
    attempts:     how many there have been. tried: replicas that failed.
    timing:       what is to happen to it at some time; None for most.
    trace:        when it came how far; None where nothing is traced.
    """

    __slots__ = (
        "attempt",
        "attempts",
        "classification",
        "costly",
        "decision",
        "edit",
        "engine_id",
        "exiled",
        "features",
        "limit_lines",
        "meter",
        "offered",
        "probes",
        "request",
        "stale_retried",
        "step_us",
        "structured",
        "tenant",
        "ticket",
        "timing",
        "trace",
        "tried",
        "verdict",
    )

    def __init__(self, request: RouteRequest, engine_id: str, tenant: str, costly: bool) -> None:
        classification = request.classification
        features = classification.features
        self.request = request
        self.classification = classification
        self.features = features
        self.edit: Edit | None = None
        self.engine_id = engine_id
        self.tenant = tenant
        self.costly = costly
        self.step_us = classification.cost.step_us if costly else 0.0
        self.structured = features.grammar is not Grammar.none
        self.verdict: Verdict | None = None
        self.exiled = False
        self.offered = False
        self.meter: Meter | None = None
        self.limit_lines = b""
        self.probes = False
        self.decision: Decision | None = None
        self.attempt: Attempt | None = None
        self.ticket: Ticket | None = None
        self.tried: tuple[Replica, ...] = ()
        self.attempts = 0
        self.stale_retried = False
        self.timing: Timing | None = None
        self.trace: Trace | None = None

    @property
    def signature(self) -> str:
        """Its cost signature."""
        return self.classification.signature

    def reckon(self, classification: Classification) -> None:
        """Reckon with another body's cost from now on; nothing of it may be booked now."""
        self.classification = classification
        self.features = classification.features
        self.costly = classification.cost.costly
        self.step_us = classification.cost.step_us if self.costly else 0.0
        self.structured = self.features.grammar is not Grammar.none

    def price_for(self, backend: str) -> None:
        """Book from now on what its grammar costs on this backend; nothing of it may be booked now.

        What was observed goes before: it holds for the engines where it was.
        """
        classification = self.classification
        cost = classification.by_backend.get(backend)
        if cost is not None and classification.predicted is None:
            self.step_us = cost.step_us


class Attempt:
    """A request on one replica; a `feed.Running`.

    engine_id: the id that this engine is given, where it takes one: the call's, but for a hedge.
    given:     the ids that its client chose, if the engine knows it by them and not by `engine_id`.
    watched:   the replica had a step feed when it began.
    gaps:      where the chunks of its stream are told to, else None.
    guest_of:  the pool that had no room for it, where it is a guest of `pool`.
    """

    __slots__ = (
        "_origin",
        "call",
        "costly",
        "engine_id",
        "exchange",
        "gaps",
        "given",
        "guest_of",
        "link",
        "pool",
        "received_s",
        "watched",
    )

    def __init__(
        self, exchange: Exchange, call: Call, link: Link, pool: Pool, engine_id: str, received_s: float
    ) -> None:
        self.exchange = exchange
        self.call = call
        self.link = link
        self.pool = pool
        self.engine_id = engine_id
        self.given: tuple[str, ...] = ()
        self.received_s = received_s
        self.costly = call.costly
        self.watched = link.itl is not None and not link.itl.on
        self.gaps: Gaps | None = None
        self.guest_of: Pool | None = None
        self._origin: Origin | None = None

    @property
    def origin(self) -> Origin:
        """Whom its observations are about; made when it is first asked for."""
        origin = self._origin
        if origin is None:
            call, pool = self.call, self.pool
            origin = self._origin = Origin(
                request_id=self.engine_id,
                signature=call.signature,
                tenant=call.tenant,
                pool=pool.name,
                replica=self.link.replica.name,
                budget_us=pool.judged_us,
                hard_limit_us=self.link.terms.hard_limit_us,
                costly=call.costly,
            )
        return origin

    @property
    def home(self) -> Pool:
        """The pool that its request goes to where there is room."""
        return self.pool if self.guest_of is None else self.guest_of

    def book_again(self) -> None:
        """Count it on its replica once more, whether or not it fits there: it has failed, and is tried again."""
        call, replica = self.call, self.link.replica
        if self.guest_of is None:
            self.pool.book(replica, call.step_us, call.structured)
        else:
            self.pool.book_guest(replica, self.guest_of, call.step_us, call.structured)

    def release(self) -> None:
        """Count it on its replica no more: it is over."""
        call, replica = self.call, self.link.replica
        if self.guest_of is None:
            self.pool.release(replica, call.step_us, call.structured)
        else:
            self.pool.release_guest(replica, call.step_us, call.structured)


class Ended:
    """What is kept of an attempt that has ended: enough to say whose a late record is, and nothing of its bytes."""

    __slots__ = ("costly", "origin", "received_s")

    def __init__(self, attempt: Attempt) -> None:
        self.origin = attempt.origin
        self.received_s = attempt.received_s
        self.costly = attempt.costly


def ask_of(exchange: Exchange, call: Call) -> Ask:
    """What a pool's balancer may look at."""
    return Ask(call.request.classification, exchange.body if exchange.buffered else b"", exchange.head)


def door_of(head: RequestHead, tenants: Register) -> Door:
    """The door of a head, made when it is first seen, and again when it may have become another tenant's."""
    base = head.base or head
    door: Door | None = base.note
    if door is None or door.epoch != tenants.epoch:
        door = base.note = Door(base, tenants.of(base.headers), tenants.epoch)
    return door


def tenant_of(head: RequestHead, door: Door, tenants: Register) -> str:
    """Whose request it is; the lines that are new each time may say so, too."""
    base = head.base
    if base is None:
        return door.tenant
    new: Sequence[tuple[bytes, bytes]] = head.headers[len(base.headers) :]
    return tenants.of(new) or door.tenant
