"""What the data plane says of a finished request to who watches decisions: features and cost, never a prompt or schema.

Called for each request while somebody watches; the proxy has None in its place otherwise.
"""

import time
from typing import Any

from gateway.call import Attempt, Call
from gateway.control.dashboard.portraits import shown_features
from gateway.control.decisions import Decisions
from gateway.wire.exchange import Exchange


class Tail:
    """Adds to `decisions`. A `proxy.Finished`."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:
        """A request is over. `attempt`: the one that ran last; `now_s`: reading of the loop's clock."""
        if self._decisions.wants():
            self._decisions.add(_document(exchange, call, attempt, now_s))


def _document(exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> dict[str, Any]:
    decision, classification = call.decision, call.classification
    predicted = classification.predicted or classification.cost
    pool = None if decision is None else decision.pool
    first = exchange.first_byte_at
    return {
        "at": round(time.time(), 3),
        "request_id": exchange.request_id.decode("latin-1"),
        "tenant": call.request.tenant,
        "path": call.request.path[:80],
        "pool": "" if pool is None else pool.name,
        "rule": "" if decision is None else decision.rule,
        "spilled_from": None if decision is None else decision.spilled_from,
        "quarantined_from": None if decision is None else decision.quarantined_from,
        "replica": "" if attempt is None else attempt.link.replica.name,
        "attempts": call.attempts,
        "status": exchange.status,
        "left": exchange.client_left,
        "ttft_ms": round((first - exchange.started_at) * 1e3, 2) if first else None,
        "took_ms": round((now_s - exchange.started_at) * 1e3, 2),
        "signature": classification.signature,
        "step_us": round(classification.cost.step_us, 1),
        "compile_ms": round(classification.cost.compile_ms, 2),
        "predicted_us": round(predicted.step_us, 1),
        "by_hook": {hook: round(us, 1) for hook, us in classification.cost.by_hook.items()},
        "features": shown_features(call.features),
    }
