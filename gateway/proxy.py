"""One request's way through the gateway: classify, decide, pick a replica, forward; and what happens when that fails.

The handler of the data plane: joins `wire` to `hookcost` and `routing` and owns nothing else. Hot: runs once per
request on the event loop, so what can be computed once per rule, replica or path is kept.
"""

import os
import re
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import structlog

from gateway.control.metrics import Metrics
from gateway.dialect import engine_ids, error_events, spliced
from gateway.hookcost import Classification, Classifier, api_of
from gateway.hookcost.cost import FREE
from gateway.hookcost.features import Api, Features
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision, Router
from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import error_reply
from gateway.wire.upstream import Upstream

log = structlog.get_logger("steplane.proxy")

_MAX_ATTEMPTS = 2
_GENERATING_METHODS = frozenset({b"POST", b"PUT"})
"""SGLang takes `PUT /generate`, too. Any other method is the engine's to refuse."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_PASSED_THROUGH = Classification(Features(), FREE, "s1-0000000000000000")
"""Of everything that is not a request for generation: nothing in it reaches the step thread."""


class Aborter(Protocol):
    """Tells an engine to drop a request that nobody waits for any more."""

    def abort(self, replica: Replica, ids: tuple[str, ...]) -> None: ...


class Refusals(Protocol):
    """Is told when a replica does not accept connections."""

    def report_refused(self, replica: Replica) -> None: ...


@dataclass(slots=True, eq=False)
class Link:
    """How the data plane reaches a replica."""

    replica: Replica
    upstream: Upstream
    response_line: bytes


@dataclass(slots=True, eq=False)
class Call:
    """What the gateway knows of one exchange beyond its bytes."""

    request: RouteRequest
    engine_id: str
    decision: Decision | None = None
    link: Link | None = None
    """Of the running attempt; its replica counts this exchange as in flight."""
    tried: list[Replica] = field(default_factory=list)
    attempts: int = 0
    stale_retried: bool = False

    @property
    def features(self) -> Features:
        """What the request asks for."""
        return self.request.classification.features


class Proxy:
    """A `wire.Handler` that routes by hook cost."""

    def __init__(
        self,
        router: Router,
        links: dict[Replica, Link],
        classifier: Classifier,
        metrics: Metrics,
        aborter: Aborter,
        refusals: Refusals,
    ) -> None:
        self._router = router
        self._links = links
        self._classify = classifier.classify
        self._metrics = metrics
        self._aborter = aborter
        self._refusals = refusals
        self._ids = count(1)
        self._id_prefix = os.urandom(6).hex()
        self._decision_lines: dict[tuple[str, str], bytes] = {}

    # --- wire.Handler

    def buffers(self, exchange: Exchange) -> bool:
        """Requests for generation are read whole, everything else streams through."""
        return exchange.method in _GENERATING_METHODS and api_of(exchange.path) is not Api.other

    def handle(self, exchange: Exchange) -> None:
        """Classify and route."""
        path = exchange.path
        engine_id = f"{self._id_prefix}-{next(self._ids):x}"
        request_id = exchange.request_id
        if not request_id or not _REQUEST_ID.fullmatch(request_id):
            exchange.request_id = request_id = engine_id.encode()
        exchange.response_lines = b"x-request-id: %b\r\n" % request_id
        if exchange.buffered and exchange.method in _GENERATING_METHODS:
            classification = self._classify(path, exchange.body)
            refusal = classification.refusal
            if refusal is not None:
                self._metrics.refused(refusal.code)
                exchange.reply(error_reply(refusal.status, refusal.message, refusal.code, param=refusal.param))
                return
        else:
            classification = _PASSED_THROUGH
        request = RouteRequest(exchange.method.decode("ascii"), path, classification)
        call = exchange.context = Call(request, engine_id)
        self._attempt(exchange, call)

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """Try once more where that is safe, else answer for the upstream."""
        call: Call = exchange.context
        link = call.link
        assert link is not None
        self._release(call)
        replica = link.replica
        self._metrics.upstream_error(replica, failure.kind)
        log.warning("attempt_failed", replica=replica.name, kind=failure.kind.value, detail=failure.detail)
        if failure.kind is FailureKind.stale and not call.stale_retried and exchange.replayable:
            # The pool's other connections are as old: this retry opens a new one.
            call.stale_retried = True
            link.upstream.drop_idle()
            self._forward(exchange, call, link)
            return
        if failure.kind is FailureKind.connect_failed:
            self._refusals.report_refused(replica)
        call.tried.append(replica)
        if call.attempts < _MAX_ATTEMPTS and failure.repeatable and exchange.replayable:
            self._attempt(exchange, call, failure)
        else:
            self._give_up(exchange, failure)

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        """The error event that ends a broken stream, in the client's dialect."""
        call: Call = exchange.context
        return error_events(call.features.api, failure.detail, f"upstream_{failure.kind.value}")

    def finished(self, exchange: Exchange) -> None:
        """Count, and tell the engine if nobody waits for the answer."""
        call: Call | None = exchange.context
        if call is None:
            return
        link = call.link
        if link is not None:
            self._release(call)
            if exchange.client_left or exchange.failure is not None:
                ids = engine_ids(call.features, link.replica.engine, call.engine_id)
                if ids:
                    self._aborter.abort(link.replica, ids)
            if exchange.failure is not None:
                self._metrics.upstream_error(link.replica, exchange.failure.kind)
                log.warning("response_broken", replica=link.replica.name, detail=exchange.failure.detail)
        self._metrics.finished(exchange, call.decision)

    # --- inside

    def _attempt(self, exchange: Exchange, call: Call, failure: Failure | None = None) -> None:
        """Route, or route again: a failed attempt may have changed which pools are available."""
        decision = call.decision = self._router.decide(call.request)
        if decision.pool is None:
            rejection = decision.rejection
            assert rejection is not None
            exchange.response_lines += b"x-steplane-route: %b\r\n" % decision.rule.encode()
            headers = b"retry-after: %d\r\n" % rejection.retry_after_s
            exchange.reply(error_reply(rejection.status, rejection.message, rejection.code, headers=headers))
            return
        replica = decision.pool.pick(call.tried)
        if replica is None:
            assert failure is not None  # a pool that was chosen has a replica, unless it was tried already
            self._give_up(exchange, failure)
            return
        call.attempts += 1
        self._forward(exchange, call, self._links[replica])

    def _forward(self, exchange: Exchange, call: Call, link: Link) -> None:
        replica, decision = link.replica, call.decision
        assert decision is not None
        replica.in_flight += 1
        call.link = link
        body = spliced(exchange.body, call.features, replica.engine, call.engine_id) if exchange.buffered else None
        lines = self._lines_of(decision) + link.response_line
        request_line = b"x-request-id: %b\r\n" % exchange.request_id
        exchange.forward(link.upstream, headers=request_line, body=body, response_lines=lines + request_line)

    def _release(self, call: Call) -> None:
        if call.link is not None:
            call.link.replica.in_flight -= 1
            call.link = None

    def _give_up(self, exchange: Exchange, failure: Failure) -> None:
        call: Call = exchange.context
        assert call.decision is not None
        exchange.response_lines = b"x-request-id: %b\r\n%b" % (exchange.request_id, self._lines_of(call.decision))
        exchange.reply(error_reply(failure.status, failure.detail, f"upstream_{failure.kind.value}"))

    def _lines_of(self, decision: Decision) -> bytes:
        assert decision.pool is not None
        key = decision.rule, decision.pool.name
        lines = self._decision_lines.get(key)
        if lines is None:
            lines = b"x-steplane-pool: %b\r\nx-steplane-route: %b\r\n" % (key[1].encode(), key[0].encode())
            self._decision_lines[key] = lines
        return lines
