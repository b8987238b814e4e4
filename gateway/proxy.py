"""One request's way through the gateway: classify, decide, pick a replica, forward; and what happens when that fails.

The handler of the data plane: joins `wire` to `hookcost` and `routing` and owns nothing else. Hot: runs once per
request on the event loop, so what can be computed once per rule, replica or path is kept.
"""

import asyncio
import os
import re
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

import structlog

from gateway.control.tally import Tally
from gateway.dialect import engine_ids, error_events, has_ended, spliced
from gateway.hookcost import Classification, Classifier, Turns, api_of
from gateway.hookcost.classify import take_turn
from gateway.hookcost.cost import FREE
from gateway.hookcost.features import Api, Features
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision, Router
from gateway.wire.exchange import Exchange, State
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import HANDLER_FAILED, error_reply
from gateway.wire.requesthead import RequestHead
from gateway.wire.upstream import Upstream

log = structlog.get_logger("steplane.proxy")

_MAX_ATTEMPTS = 2
_GENERATING_METHODS = frozenset({b"POST", b"PUT"})
"""SGLang takes `PUT /generate`, too. Any other method is the engine's to refuse."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_LEFT_RUNNING = frozenset((FailureKind.first_byte_timeout, FailureKind.bad_response))
"""Failures in which we gave up on an engine that may still work on the request."""
_ID_ENDS: Final = [f"{number:03x}" for number in range(4096)]
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


class Door:
    """What is the same for all requests with one head; kept with it."""

    __slots__ = ("api", "generates", "method", "path")

    def __init__(self, head: RequestHead) -> None:
        self.method = head.method.decode("ascii")
        self.path = head.path
        self.api = api_of(head.path)
        self.generates = head.method in _GENERATING_METHODS and self.api is not Api.other


class Call:
    """What the gateway knows of one exchange beyond its bytes.

    link:  of the running attempt; its replica counts this exchange as in flight.
    tried: replicas that failed.
    """

    __slots__ = ("attempts", "decision", "engine_id", "features", "link", "request", "stale_retried", "tried")

    def __init__(self, request: RouteRequest, engine_id: str) -> None:
        self.request = request
        self.features = request.classification.features
        self.engine_id = engine_id
        self.decision: Decision | None = None
        self.link: Link | None = None
        self.tried: tuple[Replica, ...] = ()
        self.attempts = 0
        self.stale_retried = False


class Proxy:
    """A `wire.Handler` that routes by hook cost."""

    def __init__(
        self,
        router: Router,
        links: dict[Replica, Link],
        classifier: Classifier,
        tally: Tally,
        aborter: Aborter,
        refusals: Refusals,
    ) -> None:
        self._router = router
        self._links = links
        self._begin = classifier.begin
        self._loop = asyncio.get_running_loop()
        self._tally = tally
        self._aborter = aborter
        self._refusals = refusals
        self._id_block = ""
        self._next_id = len(_ID_ENDS)
        self._blocks = count(int.from_bytes(os.urandom(6)) << 36)
        self._decision_lines: dict[Decision, bytes] = {}

    # --- wire.Handler

    def buffers(self, exchange: Exchange) -> bool:
        """Requests for generation are read whole, everything else streams through."""
        return _door(exchange.head).generates

    def handle(self, exchange: Exchange) -> None:
        """Classify and route."""
        engine_id = self._new_id()
        request_id = exchange.request_id
        if not request_id or not _REQUEST_ID.fullmatch(request_id):
            exchange.request_id = request_id = engine_id.encode()
        exchange.response_lines = b"x-request-id: %b\r\n" % request_id
        door = _door(exchange.head)
        if not (exchange.buffered and door.generates):
            self._route(exchange, door, engine_id, _PASSED_THROUGH)
            return
        classification = self._begin(door.path, exchange.body)
        if isinstance(classification, Classification):
            self._route(exchange, door, engine_id, classification)
        else:
            self._loop.call_soon(self._take_turn, exchange, door, engine_id, classification)

    def _take_turn(self, exchange: Exchange, door: Door, engine_id: str, turns: Turns) -> None:
        """Go on with what takes long to classify, and let others have the loop in between."""
        if exchange.state == State.done:
            return
        try:
            classification = take_turn(turns)
            if classification is None:
                self._loop.call_soon(self._take_turn, exchange, door, engine_id, turns)
            else:
                self._route(exchange, door, engine_id, classification)
        except Exception:
            log.exception("classification_failed", path=door.path)
            exchange.reply(HANDLER_FAILED)

    def _route(self, exchange: Exchange, door: Door, engine_id: str, classification: Classification) -> None:
        refusal = classification.refusal
        if refusal is not None:
            self._tally.refused(refusal.code)
            exchange.reply(error_reply(refusal.status, refusal.message, refusal.code, param=refusal.param))
            return
        call = exchange.context = Call(RouteRequest(door.method, door.path, classification), engine_id)
        self._attempt(exchange, call)

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """Try once more where that is safe, else answer for the upstream."""
        call: Call = exchange.context
        link = call.link
        assert link is not None
        self._release(call)
        replica = link.replica
        self._tally.upstream_error(replica.pool, replica.name, failure.kind)
        log.warning("attempt_failed", replica=replica.name, kind=failure.kind.value, detail=failure.detail)
        if failure.kind is FailureKind.stale and not call.stale_retried and exchange.replayable:
            # The pool's other connections are as old: this retry opens a new one.
            call.stale_retried = True
            link.upstream.drop_idle()
            assert call.decision is not None
            assert call.decision.pool is not None
            call.decision.pool.book(replica)
            self._forward(exchange, call, link)
            return
        if failure.kind in _LEFT_RUNNING:
            self._abort(call, replica)
        if failure.kind is FailureKind.connect_failed:
            self._refusals.report_refused(replica)
        call.tried = (*call.tried, replica)
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
        if exchange.client_left and has_ended(exchange.last_read):
            exchange.client_left = False
        if link is not None:
            self._release(call)
            if exchange.client_left or exchange.failure is not None:
                self._abort(call, link.replica)
            if exchange.failure is not None:
                replica = link.replica
                self._tally.upstream_error(replica.pool, replica.name, exchange.failure.kind)
                log.warning("response_broken", replica=replica.name, detail=exchange.failure.detail)
        decision = call.decision
        if decision is not None:
            first = exchange.first_byte_at
            ttft_s = first - exchange.started_at if first else -1.0
            self._tally.finished(decision, exchange.status, exchange.client_left, ttft_s)

    # --- inside

    def _new_id(self) -> str:
        """An id that no other request of any gateway has.

        All have one length, because SGLang's scheduler aborts every request whose id begins with the one it is given.
        Taken from a table, in a tenth of the time of spelling a number.
        """
        if self._next_id == len(_ID_ENDS):
            self._id_block = f"{next(self._blocks):021x}"
            self._next_id = 0
        end = _ID_ENDS[self._next_id]
        self._next_id += 1
        return self._id_block + end

    def _attempt(self, exchange: Exchange, call: Call, failure: Failure | None = None) -> None:
        """Route, or route again: a failed attempt may have changed which pools are available."""
        decision = call.decision = self._router.decide(call.request)
        if decision.pool is None:
            rejection = decision.rejection
            assert rejection is not None
            lines = b"x-request-id: %b\r\nx-steplane-route: %b\r\n"  # nothing of an attempt that failed before
            exchange.response_lines = lines % (exchange.request_id, decision.rule.encode())
            headers = b"retry-after: %d\r\n" % rejection.retry_after_s
            exchange.reply(error_reply(rejection.status, rejection.message, rejection.code, headers=headers))
            return
        replica = decision.pool.admit(excluded=call.tried)
        if replica is None:
            assert failure is not None  # a pool that was chosen has a replica, unless it was tried already
            self._give_up(exchange, failure)
            return
        call.attempts += 1
        self._forward(exchange, call, self._links[replica])

    def _forward(self, exchange: Exchange, call: Call, link: Link) -> None:
        replica, decision = link.replica, call.decision
        assert decision is not None
        call.link = link
        body = spliced(exchange.body, call.features, replica.engine, call.engine_id) if exchange.buffered else None
        request_line = b"x-request-id: %b\r\n" % exchange.request_id
        lines = b"%b%b%b" % (self._lines_of(decision), link.response_line, request_line)
        exchange.forward(link.upstream, headers=request_line, body=body, response_lines=lines)

    def _abort(self, call: Call, replica: Replica) -> None:
        """Tell the engine that nobody waits for the answer."""
        ids = engine_ids(call.features, replica.engine, call.engine_id)
        if ids:
            self._aborter.abort(replica, ids)

    def _release(self, call: Call) -> None:
        if call.link is not None:
            assert call.decision is not None
            assert call.decision.pool is not None
            call.decision.pool.release(call.link.replica)
            call.link = None

    def _give_up(self, exchange: Exchange, failure: Failure) -> None:
        call: Call = exchange.context
        assert call.decision is not None
        exchange.response_lines = b"x-request-id: %b\r\n%b" % (exchange.request_id, self._lines_of(call.decision))
        exchange.reply(error_reply(failure.status, failure.detail, f"upstream_{failure.kind.value}"))

    def _lines_of(self, decision: Decision) -> bytes:
        lines = self._decision_lines.get(decision)
        if lines is None:
            assert decision.pool is not None
            pool, rule = decision.pool.name.encode(), decision.rule.encode()
            lines = self._decision_lines[decision] = b"x-steplane-pool: %b\r\nx-steplane-route: %b\r\n" % (pool, rule)
        return lines


def _door(head: RequestHead) -> Door:
    door: Door | None = head.note
    if door is None:
        door = head.note = Door(head)
    return door
