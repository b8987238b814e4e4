"""Requests that wait until a replica has room for them, and what becomes of them. The queues are routing's.

Where another pool may take what there is no room for, it is asked first, and as long as they wait.
"""

from collections.abc import Mapping
from functools import partial

import structlog

from gateway.backpressure import BackPressure
from gateway.call import Call, Terms, ask_of
from gateway.desk import Desk
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Decision, Rejection, Router, welcomes
from gateway.routing.ticket import Ticket
from gateway.wire.exchange import Exchange, State
from gateway.wire.message import HANDLER_FAILED

log = structlog.get_logger("steplane.proxy")


class WaitingRoom:
    """Who waits now, and for the room of which pool. `terms` are by the name of the pool."""

    def __init__(self, desk: Desk, router: Router, terms: Mapping[str, Terms], back_pressure: BackPressure) -> None:
        self._desk = desk
        self._back_pressure = back_pressure
        self._waiting: dict[Exchange, tuple[Call, Terms]] = {}
        self.reconfigure(router, terms)

    def reconfigure(self, router: Router, terms: Mapping[str, Terms]) -> None:
        """Go by these from now on; who waits already waits on."""
        self._router = router
        self._terms = terms

    def enter(self, exchange: Exchange, call: Call, decision: Decision) -> None:
        """Queue for room on a replica of the decision's pool, unless all want to be left alone for too long."""
        pool = decision.pool
        assert pool is not None
        terms = self._terms[pool.name]
        hosts = self._hosts(call, pool) if pool.overflow else ()
        in_line = pool.waiting > 0
        for host in () if in_line else hosts:
            replica = host.admit_guest(pool, call.step_us, call.structured, call.tried)
            if replica is not None:
                self._visit(exchange, call, decision, host, replica)
                return
        if pool.resting:
            rejection = self._back_pressure.refusal(call, terms, call.tried)
            if rejection is not None:
                self._desk.reject(exchange, decision, rejection)
                return
        ticket = Ticket(
            call.step_us,
            call.structured,
            partial(self._admitted, exchange, call, pool),
            partial(self._not_admitted, exchange, call),
            tenant=call.tenant,
            priority=self._desk.priority_of(call.tenant),
            excluded=call.tried,
            hosts=tuple([host.name for host in hosts]),
        )
        call.ticket = ticket
        outcome = terms.queue.wait(ticket)
        if isinstance(outcome, Replica):
            self._admitted(exchange, call, pool, outcome)
        elif outcome is not None:
            self._not_admitted(exchange, call, outcome)
        else:
            self._waiting[exchange] = (call, terms)
            if hosts and in_line:
                terms.queue.look_abroad()

    def leave(self, exchange: Exchange, call: Call) -> None:
        """It does not wait any more: its client has left, or it goes another way."""
        ticket = call.ticket
        place = self._waiting.pop(exchange, None)
        call.ticket = None
        if ticket is not None and place is not None:
            place[1].queue.cancel(ticket)

    def recall(self, signature: str) -> None:
        """A signature has tripped: what waits of it goes where a new request of it would."""
        for exchange, (call, terms) in tuple(self._waiting.items()):
            if call.signature != signature or call.ticket is None or terms.quarantine:
                continue
            try:
                self.leave(exchange, call)
                self._desk.ask_again(call)
                self._desk.route(exchange, call)
            except Exception:
                log.exception("recall_failed", signature=signature)
                exchange.reply(HANDLER_FAILED)

    def _hosts(self, call: Call, pool: Pool) -> tuple[Pool, ...]:
        """The pools that may take a request as a guest, while its own has no room for it: not what is quarantined."""
        if call.verdict is not None:
            return ()
        classification, allowed = call.classification, call.request.pools
        return tuple([host for host in pool.overflow if welcomes(host, pool, classification, allowed)])

    def _visit(self, exchange: Exchange, call: Call, decision: Decision, host: Pool, replica: Replica) -> None:
        """It is booked on a replica as a guest."""
        call.decision = self._router.as_guest(decision, host)
        self._desk.send(exchange, call, replica)

    def _admitted(self, exchange: Exchange, call: Call, pool: Pool, replica: Replica) -> None:
        """A place for it has come free, and is booked."""
        ticket, call.ticket = call.ticket, None
        host = None if ticket is None else ticket.host
        self._waiting.pop(exchange, None)
        try:
            if call.verdict is None and not call.exiled:
                self._desk.ask_again(call)
                if call.verdict is not None:  # its signature has tripped while it waited
                    assert ticket is not None
                    ticket.give_back(pool, replica)
                    self._desk.route(exchange, call)
                    return
            if host is not None:
                assert call.decision is not None
                self._visit(exchange, call, call.decision, host, replica)
                return
            if pool.balancer is not None:
                pool.balancer.learn(ask_of(exchange, call), replica)
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
