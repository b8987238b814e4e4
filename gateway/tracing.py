"""Requests as traces: W3C context in and out, and spans from the times that were taken on the way.

    POST /v1/chat/completions      server, from the request's head to the end of its answer; or the method alone
      parse                        reading the body and finding out what it costs
      decide                       rules, breakers, tenants
      queue                        waiting for room, if it did
      chat MODEL                   client, each attempt at a replica
        first_byte, stream         of the attempt that was answered

Spans are made when a request is over, and only of those that are sampled. Names of attributes: OpenTelemetry's semantic
conventions for HTTP and for generative AI, and `steplane.*`. Never a prompt, a schema or a key.
"""

import os
import re
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from gateway.accesslog import outcome_of
from gateway.breaker.outcome import Outcome
from gateway.call import Attempt, Call
from gateway.control.tracing import Span, SpanSink
from gateway.control.tracingconfig import TracingConfig
from gateway.hookcost.features import Api, Grammar
from gateway.trace import Leg, Trace, new_span_id, new_trace_id, parent_of
from gateway.wire.exchange import Exchange

_CONTEXT_LINES: Final = re.compile(rb"(?im)^trace(?:parent|state)[ \t]*:[^\r\n]*\r\n")
_OPERATIONS: Final = {
    Api.chat: "chat",
    Api.messages: "chat",
    Api.responses: "chat",
    Api.completions: "text_completion",
    Api.generate: "text_completion",
}
_LONGEST: Final = 200
_WAITED_S: Final = 0.0005
"""What comes between a decision and its sending where nothing is waited for takes less."""
_HARMLESS: Final = frozenset((Outcome.ok, Outcome.client_fault, Outcome.unknown))
_JSON: Final = frozenset((Grammar.json_object, Grammar.json_schema))


class Tracing:
    """A `proxy.Tracer`, and a `proxy.Finished`."""

    def __init__(
        self,
        sink: SpanSink,
        sample: float,
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
        exemplar: Callable[[str, float, str], None],
    ) -> None:
        """clock: as the loop's, but exact, for that one stands still while something is done. wall_ns: the time of day.
        exemplar: is told pool, seconds to the first byte, and trace."""
        self._sink = sink
        self._below = int(sample * (1 << 64))
        self._clock = clock
        self._wall_ns = wall_ns
        self._exemplar = exemplar

    # --- proxy.Tracer

    def began(self, exchange: Exchange, call: Call) -> None:
        """Continue the client's trace, or begin one."""
        parent = parent_of(exchange.head.headers)
        if parent is not None:
            call.trace = Trace(parent.trace_id, parent, parent.sampled, self._clock())
        else:
            trace_id = new_trace_id()
            call.trace = Trace(trace_id, None, trace_id & _LOW_64 < self._below, self._clock())

    def decided(self, call: Call) -> None:
        """The first decision is the one that is timed: what follows answers to a failure."""
        trace = call.trace
        if trace is not None and not trace.decided_s:
            trace.decided_s = self._clock()

    def sent(self, call: Call, attempt: Attempt, lines: bytes) -> bytes:
        """The attempt's span is the parent of what its engine does."""
        trace = call.trace
        if trace is None:
            return lines
        leg = Leg(attempt, new_span_id(), self._clock())
        trace.legs.append(leg)
        kept = _CONTEXT_LINES.sub(b"", lines)
        kept += b"traceparent: %b\r\n" % trace.header(leg.span_id)
        if trace.parent is not None and trace.parent.state:
            kept += b"tracestate: %b\r\n" % trace.parent.state
        return kept

    def ended(self, call: Call, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over."""
        trace = call.trace
        if trace is not None:
            for leg in trace.legs:
                if leg.attempt is attempt:
                    leg.ended_s, leg.outcome = self._clock(), outcome

    def close(self) -> None:
        """Send what is left. Blocks for some seconds at most: not for the event loop."""
        self._sink.close()

    # --- proxy.Finished

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:  # noqa: ARG002
        """Make the spans."""
        trace = call.trace
        if trace is None or not trace.sampled:
            return
        first_s = exchange.first_byte_at
        pool = None if call.decision is None else call.decision.pool
        if pool is not None and first_s:
            self._exemplar(pool.name, first_s - exchange.started_at, trace.id)
        exact_s = self._clock()
        _Spans(self._sink, trace, self._wall_ns() - int(exact_s * 1e9)).make(exchange, call, attempt, exact_s)


def start_tracing(config: TracingConfig, exemplar: Callable[[str, float, str], None]) -> Tracing:
    """Tracing as the configuration says; see `Tracing`."""
    sink = SpanSink(config, f"{socket.gethostname()}:{os.getpid()}")
    return Tracing(sink, config.sample, time.monotonic, time.time_ns, exemplar)


class _Spans:
    """The spans of one request. `offset_ns`: from the loop's clock to the time of day."""

    def __init__(self, sink: SpanSink, trace: Trace, offset_ns: int) -> None:
        self._sink = sink
        self._trace = trace
        self._offset_ns = offset_ns

    def make(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:
        trace, began_s = self._trace, exchange.started_at
        classified_s = trace.classified_s
        decided_s = trace.decided_s or classified_s
        self._add("parse", began_s, classified_s, {"steplane.body_bytes": exchange.body_size})
        self._add("decide", classified_s, decided_s, _decision(call))
        sent_s = trace.legs[0].began_s if trace.legs else now_s
        if sent_s - decided_s > _WAITED_S:
            self._add("queue", decided_s, sent_s, {})
        for number, leg in enumerate(trace.legs):
            self._leg(leg, number, leg.attempt is attempt, exchange, call, now_s)
        outcome = outcome_of(exchange, call, attempt)
        parent = trace.parent
        failure = outcome if exchange.status >= 500 or exchange.failure is not None else None
        self._sink.add(
            Span(
                name=" ".join([exchange.method.decode("latin-1"), *_route(call)]),
                kind="server",
                trace_id=trace.trace_id,
                span_id=trace.span_id,
                parent_id=0 if parent is None else parent.span_id,
                began_ns=self._at(began_s),
                ended_ns=self._at(now_s),
                attributes=_request(exchange, call, failure)
                | _decision(call)
                | _asked(call)
                | {"steplane.outcome": outcome},
                is_remote=parent is not None,
                failure=failure,
                state=b"" if parent is None else parent.state,
            )
        )

    def _leg(self, leg: Leg, number: int, answered: bool, exchange: Exchange, call: Call, now_s: float) -> None:
        ended_s = leg.ended_s or now_s
        outcome = Outcome.unknown if leg.outcome is None else leg.outcome
        replica = leg.attempt.link.replica
        operation = _OPERATIONS.get(call.features.api)
        name = exchange.method.decode("latin-1")
        if operation is not None:
            name = f"{operation} {(call.features.model or '')[:_LONGEST]}".rstrip()
        attributes: dict[str, Any] = {
            "steplane.pool": replica.pool,
            "steplane.replica": replica.name,
            "steplane.outcome": outcome.value,
            "http.request.method": exchange.method.decode("latin-1"),
            "server.address": replica.host,
            "server.port": replica.port,
            "url.full": replica.url + exchange.path[:_LONGEST],
        }
        failure = None if outcome in _HARMLESS else outcome.value
        first_s = exchange.first_byte_at
        if number:
            attributes["http.request.resend_count"] = number
        if answered and exchange.status:
            attributes["http.response.status_code"] = exchange.status
        if operation is not None:
            attributes["gen_ai.provider.name"] = replica.engine
            if answered and first_s and call.features.stream:
                attributes["gen_ai.response.time_to_first_chunk"] = max(0.0, first_s - leg.began_s)
        if failure is not None:
            attributes["error.type"] = failure
        self._add(
            name, leg.began_s, ended_s, attributes | _asked(call), kind="client", span_id=leg.span_id, failure=failure
        )
        if answered and first_s:
            self._add("first_byte", leg.began_s, first_s, {}, parent_id=leg.span_id)
            self._add("stream", first_s, ended_s, {"steplane.bytes_out": exchange.bytes_out}, parent_id=leg.span_id)

    def _add(
        self,
        name: str,
        began_s: float,
        ended_s: float,
        attributes: dict[str, Any],
        *,
        kind: str = "internal",
        span_id: int = 0,
        parent_id: int = 0,
        failure: str | None = None,
    ) -> None:
        self._sink.add(
            Span(
                name=name,
                kind=kind,
                trace_id=self._trace.trace_id,
                span_id=span_id or new_span_id(),
                parent_id=parent_id or self._trace.span_id,
                began_ns=self._at(began_s),
                ended_ns=self._at(ended_s),
                attributes=attributes,
                failure=failure,
            )
        )

    def _at(self, loop_s: float) -> int:
        return self._offset_ns + int(loop_s * 1e9)


def _route(call: Call) -> tuple[str, ...]:
    """The path, where it is one of those that we know: what clients make up is no name."""
    path = call.request.path
    return () if call.features.api is Api.other or not path.startswith("/") else (path.rstrip("/")[:_LONGEST],)


def _request(exchange: Exchange, call: Call, failure: str | None) -> dict[str, Any]:
    encrypted = exchange.client.transport.get_extra_info("ssl_object") is not None
    found: dict[str, Any] = {
        "http.request.method": exchange.method.decode("latin-1"),
        "url.path": exchange.path[:_LONGEST],
        "url.scheme": "https" if encrypted else "http",
        "http.request.body.size": exchange.body_size,
        "http.response.size": exchange.bytes_out,
        "steplane.request_id": exchange.request_id.decode("latin-1"),
    }
    if exchange.status:
        found["http.response.status_code"] = exchange.status
    for route in _route(call):
        found["http.route"] = route
    if failure is not None:
        found["error.type"] = failure
    return found


def _decision(call: Call) -> dict[str, Any]:
    decision, classification = call.decision, call.classification
    found: dict[str, Any] = {
        "steplane.tenant": call.request.tenant[:_LONGEST],
        "steplane.signature": classification.signature,
        "steplane.step_us": classification.cost.step_us,
        "steplane.compile_ms": classification.cost.compile_ms,
        "steplane.attempts": call.attempts,
    }
    if decision is not None:
        found["steplane.rule"] = decision.rule
        found["steplane.pool"] = "" if decision.pool is None else decision.pool.name
        if decision.spilled_from:
            found["steplane.spilled_from"] = decision.spilled_from
        if decision.quarantined_from:
            found["steplane.quarantined_from"] = decision.quarantined_from
    return found


def _asked(call: Call) -> dict[str, Any]:
    """What a request for generation asks for, in the words of the conventions."""
    features = call.features
    operation = _OPERATIONS.get(features.api)
    if operation is None:
        return {}
    found: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.output.type": "json" if features.grammar in _JSON else "text",
        "gen_ai.request.stream": features.stream,
        "steplane.grammar": features.grammar.value,
    }
    if features.model:
        found["gen_ai.request.model"] = features.model[:_LONGEST]
    if features.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = features.max_tokens
    if features.n != 1:
        found["gen_ai.request.choice.count"] = features.n
    return found


_LOW_64: Final = (1 << 64) - 1
