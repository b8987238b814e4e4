"""Requests that wait until a replica has room for them, and what becomes of them. The queues are routing's."""

from collections.abc import Mapping
from functools import partial

import structlog

from gateway.breaker.trust import Trust
from gateway.call import Call, Terms
from gateway.desk import Desk
from gateway.routing.replica import Replica
from gateway.routing.router import Decision, Rejection, Router
from gateway.routing.ticket import Ticket
from gateway.wire.exchange import Exchange, State
from gateway.wire.message import HANDLER_FAILED

log = structlog.get_logger("steplane.proxy")


class WaitingRoom:
    """Who waits now. `terms` are by the name of the pool."""

    def __init__(self, desk: Desk, router: Router, terms: Mapping[str, Terms], trust: Trust) -> None:
        self._desk = desk
        self._router = router
        self._terms = terms
        self._trust = trust
        self._waiting: dict[Exchange, Call] = {}

    def enter(self, exchange: Exchange, call: Call, decision: Decision) -> None:
        """Queue for room on a replica of the decision's pool."""
        pool = decision.pool
        assert pool is not None
        ticket = Ticket(
            call.step_us,
            call.structured,
            partial(self._admitted, exchange, call),
            partial(self._not_admitted, exchange, call),
            tenant=call.tenant,
            excluded=call.tried,
        )
        call.ticket = ticket
        outcome = self._terms[pool.name].queue.wait(ticket)
        if isinstance(outcome, Replica):
            self._admitted(exchange, call, outcome)
        elif outcome is not None:
            self._not_admitted(exchange, call, outcome)
        else:
            self._waiting[exchange] = call

    def leave(self, exchange: Exchange, call: Call) -> None:
        """It does not wait any more: its client has left, or it goes another way."""
        ticket, decision = call.ticket, call.decision
        if ticket is None or decision is None or decision.pool is None:
            return
        call.ticket = None
        self._waiting.pop(exchange, None)
        self._terms[decision.pool.name].queue.cancel(ticket)

    def recall(self, signature: str) -> None:
        """A signature has tripped: what waits of it goes where a new request of it would."""
        for exchange, call in tuple(self._waiting.items()):
            decision = call.decision
            if call.signature != signature or call.ticket is None or decision is None or decision.pool is None:
                continue
            if self._terms[decision.pool.name].quarantine:
                continue
            try:
                self.leave(exchange, call)
                self._ask_again(call)
                self._desk.route(exchange, call)
            except Exception:
                log.exception("recall_failed", signature=signature)
                exchange.reply(HANDLER_FAILED)

    def _admitted(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """A place for it has come free, and is booked."""
        call.ticket = None
        self._waiting.pop(exchange, None)
        try:
            if call.verdict is None and not call.exiled:
                self._ask_again(call)
                if call.verdict is not None:  # its signature has tripped while it waited
                    self._terms[replica.pool].pool.release(replica, call.step_us, call.structured)
                    self._desk.route(exchange, call)
                    return
            self._desk.send(exchange, call, replica)
        except Exception:
            log.exception("forward_failed", replica=replica.name)
            exchange.reply(HANDLER_FAILED)

    def _not_admitted(self, exchange: Exchange, call: Call, rejection: Rejection) -> None:
        """It has waited in vain; where its pool is gone, another may stand in."""
        call.ticket = None
        self._waiting.pop(exchange, None)
        decision = call.decision
        assert decision is not None
        if rejection.code == "pool_unavailable" and exchange.state != State.done:
            again = self._router.decide(call.request)
            if again.pool is not None and again.pool is not decision.pool:
                self._desk.route(exchange, call)
                return
        self._desk.reject(exchange, decision, rejection)

    def _ask_again(self, call: Call) -> None:
        classification = call.request.classification
        call.verdict = self._trust.verdict(classification.signature, call.tenant, classification.cost)
