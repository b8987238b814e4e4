"""What quarantine means for a request: where it goes instead, that it is refused, or ended while it runs.

Whether it is quarantined is the breaker's to say (gateway/breaker); this does what follows, by the terms of its pool.
"""

from collections.abc import Mapping
from functools import partial

import structlog

from gateway.breaker.outcome import Outcome
from gateway.breaker.verdict import Verdict
from gateway.call import Attempt, Call, Terms
from gateway.control.tally import Tally
from gateway.desk import Desk
from gateway.feed.running import RunningRequests
from gateway.oversight import Oversight
from gateway.routing.router import Decision, Router
from gateway.wire.exchange import Exchange, State
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import HANDLER_FAILED, Reply, error_reply

log = structlog.get_logger("steplane.proxy")

_OVER = "this request exceeded its step budget"


class Quarantine:
    """See the module. `terms` are by the name of the pool."""

    def __init__(
        self,
        desk: Desk,
        router: Router,
        terms: Mapping[str, Terms],
        oversight: Oversight,
        running: RunningRequests,
        tally: Tally,
    ) -> None:
        self._desk = desk
        self._oversight = oversight
        self._running = running
        self._tally = tally
        self.reconfigure(router, terms)

    def reconfigure(self, router: Router, terms: Mapping[str, Terms]) -> None:
        """Go by these from now on."""
        self._router = router
        self._terms = terms

    def judged(self, exchange: Exchange, call: Call, decision: Decision) -> Decision | None:
        """Where a request goes that is quarantined; None: it was refused, or waits to be told whether it may probe."""
        pool = decision.pool
        if pool is None:
            return decision
        terms = self._terms[pool.name]
        verdict = call.verdict
        probe = verdict.probe if verdict is not None else None
        elsewhere = self._router.has_quarantine()
        if probe is not None and not call.offered:
            call.offered = True
            # Where there is a quarantine pool it goes there in any case, and is not kept waiting.
            decided = None if elsewhere else partial(self._offered, exchange, call, decision)
            self._oversight.offer(probe, call.engine_id, lambda: exchange.state != State.done, decided)
            if decided is not None:
                return None
        if terms.quarantine or call.probes:
            return decision
        if elsewhere and (terms.on_open == "quarantine" or call.exiled or probe is not None):
            self._tally.quarantined[pool.name, "quarantine"] += 1
            return self._router.quarantined(decision, call.request)
        self._refuse(exchange, call, decision)
        return None

    def evict(self, signature: str) -> None:
        """A signature has tripped: what runs of it outside quarantine is ended, or left, by its pool's policy."""
        for _, running in self._running.of_signature(signature):
            if not isinstance(running, Attempt):
                continue
            terms = running.link.terms
            if terms.quarantine or terms.on_trip == "let_finish" or running.call.attempt is not running:
                continue
            try:
                self._evict(running, terms)
            except Exception:
                log.exception("eviction_failed", replica=running.link.replica.name)

    def can_exile(self, attempt: Attempt) -> bool:
        """Whether a request that has sent nothing yet may be run again in quarantine."""
        terms = attempt.link.terms
        return (
            not terms.quarantine
            and terms.on_trip == "rerun"
            and self._router.has_quarantine()
            and attempt.exchange.replayable
        )

    def exile(self, exchange: Exchange, call: Call) -> None:
        """Run it again in quarantine: nothing of its answer has reached the client."""
        assert call.decision is not None
        assert call.decision.pool is not None
        self._tally.evicted[call.decision.pool.name, "rerun"] += 1
        call.exiled = True
        call.attempts = 0
        call.tried = ()
        self._desk.route(exchange, call)

    def _evict(self, attempt: Attempt, terms: Terms) -> None:
        exchange, call = attempt.exchange, attempt.call
        classification = call.classification
        verdict = self._oversight.trust.verdict(classification.signature, call.tenant, classification.cost)
        self._desk.stop_hedge(call)
        self._desk.abort(attempt)
        if not exchange.withdraw():
            self._tally.evicted[terms.pool.name, "ended"] += 1
            exchange.end(Failure(FailureKind.ended, verdict.message if verdict is not None else _OVER))
            return
        self._desk.end_attempt(call, attempt, Outcome.unknown)
        if self.can_exile(attempt):
            self.exile(exchange, call)
        else:
            self._tally.evicted[terms.pool.name, "refused"] += 1
            exchange.reply(_reply(verdict))

    def _offered(self, exchange: Exchange, call: Call, decision: Decision, granted: bool) -> None:
        """Without a quarantine pool a probe runs where the rules say, and nothing else of its signature does."""
        if exchange.state == State.done:
            return
        try:
            if granted:
                call.probes = True
                self._desk.route(exchange, call)
            else:
                self._refuse(exchange, call, decision)
        except Exception:
            log.exception("probe_failed", signature=call.signature)
            exchange.reply(HANDLER_FAILED)

    def _refuse(self, exchange: Exchange, call: Call, decision: Decision) -> None:
        """Say why it may not run."""
        assert decision.pool is not None
        self._tally.quarantined[decision.pool.name, "refused"] += 1
        call.decision = decision
        self._desk.answer(exchange, decision, _reply(call.verdict))


def _reply(verdict: Verdict | None) -> Reply:
    """429 with what was over budget, by how much, and how to fix it."""
    if verdict is None:
        return error_reply(429, _OVER, "step_budget_exceeded", headers=b"retry-after: 1\r\n")
    headers = b"retry-after: %d\r\n" % verdict.retry_after_s
    return error_reply(429, verdict.message, "quarantined", headers=headers, details=verdict.document())
