"""What the access log says of a request: the decision, its cost, times, bytes and outcome.

Never a prompt, a schema, a header or a key: of the body only what the cost depends on, of the path no query. Writing is
control/access.py's.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gateway.call import Attempt, Call
from gateway.control.access import Line
from gateway.control.logsconfig import AccessConfig
from gateway.wire.exchange import Exchange

_LONGEST = 200
"""Characters of what clients chose."""


class AccessLog:
    """A `proxy.Finished`."""

    def __init__(
        self,
        config: AccessConfig,
        write: Callable[[Line], None],
        chance: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        """chance: a random number from 0 to 1, 1 not included. wall: the time of day, in seconds."""
        self._sample = config.sample
        self._slow_s = float("inf") if config.slow_s is None else config.slow_s
        self._write = write
        self._chance = chance
        self._wall = wall

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:
        """A request is over that was classified."""
        if self._is_wanted(exchange, now_s):
            line = self._line(exchange, now_s, outcome_of(exchange, call, attempt))
            self._write(line | _decided(exchange, call, attempt, now_s))

    def turned_away(self, exchange: Exchange) -> None:
        """A request was answered without that: its body can't be used, or it steers the engine."""
        now_s = exchange.client.clock.at
        if self._is_wanted(exchange, now_s):
            self._write(self._line(exchange, now_s, "client_left" if exchange.client_left else "refused"))

    def _is_wanted(self, exchange: Exchange, now_s: float) -> bool:
        if exchange.failure is not None or exchange.status >= 500 or now_s - exchange.started_at >= self._slow_s:
            return True
        return self._chance() < self._sample

    def _line(self, exchange: Exchange, now_s: float, outcome: str) -> dict[str, Any]:
        first = exchange.first_byte_at
        return {
            "event": "access",
            "level": "info",
            "timestamp": datetime.fromtimestamp(self._wall(), UTC).isoformat().replace("+00:00", "Z"),
            "request_id": exchange.request_id.decode("latin-1"),
            "method": exchange.method.decode("latin-1"),
            "path": _text(exchange.path),
            "status": exchange.status,
            "outcome": outcome,
            "total_ms": _ms(now_s - exchange.started_at),
            "ttfb_ms": _ms(first - exchange.started_at) if first else None,
            "bytes_in": exchange.body_size,
            "bytes_out": exchange.bytes_out,
        }


def outcome_of(exchange: Exchange, call: Call, attempt: Attempt | None) -> str:
    """What came of a request, in a word.

    ok, client_left; rejected: by us, since nobody could or might take it; error: a replica's 4xx or 5xx, or ours where
    replicas failed; else what broke the answer (`wire.failure.FailureKind`).
    """
    if exchange.client_left:
        return "client_left"
    if exchange.failure is not None:
        return exchange.failure.kind.value
    if exchange.status < 400:
        return "ok"
    return "error" if attempt is not None or call.attempts else "rejected"


def _decided(exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> dict[str, Any]:
    """What is known of a request beyond its bytes."""
    decision, classification, features = call.decision, call.classification, call.features
    cost = classification.cost
    pool = None if decision is None else decision.pool
    line: dict[str, Any] = {
        "tenant": _text(call.request.tenant),
        "api": features.api.value,
        "model": None if features.model is None else _text(features.model),
        "stream": features.stream,
        "grammar": features.grammar.value,
        "pool": None if pool is None else pool.name,
        "rule": None if decision is None else decision.rule,
        "replica": None if attempt is None else attempt.link.replica.name,
        "attempts": call.attempts,
        "signature": classification.signature,
        "step_us": round(cost.step_us, 1),
        "compile_ms": round(cost.compile_ms, 2),
    }
    if attempt is not None:
        # Until the request was sent where it was answered, and from there on.
        line["waited_ms"] = _ms(attempt.received_s - exchange.started_at)
        line["upstream_ms"] = _ms(now_s - attempt.received_s)
    if decision is not None and decision.spilled_from:
        line["spilled_from"] = decision.spilled_from
    if decision is not None and decision.quarantined_from:
        line["quarantined_from"] = decision.quarantined_from
    if call.trace is not None:
        line["trace_id"] = call.trace.id
    return line


def _text(chosen: str) -> str:
    """Text that a client chose: short, and without what would steer a terminal."""
    short = chosen[:_LONGEST]
    return short if short.isprintable() else "".join([each if each.isprintable() else "\ufffd" for each in short])


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
