"""What becomes of a request when an attempt at it has failed or was turned down: another one, now or later, or none.

By the plan of its rule and pool (gateway/retry). Sends nothing itself: another attempt begins like the first, with the
question where it goes now.
"""

from collections.abc import Callable
from functools import partial
from random import random

import structlog

from gateway.backpressure import BackPressure
from gateway.breaker.outcome import Outcome
from gateway.call import Attempt, Call, Timing
from gateway.control.tally import Tally
from gateway.desk import Desk
from gateway.hookcost.features import Api
from gateway.retry.alarms import Alarms
from gateway.retry.plan import Plan, Plans
from gateway.retry.reason import Reason, reason_of_failure, reason_of_status
from gateway.wire.exchange import Exchange, State
from gateway.wire.failure import Failure
from gateway.wire.message import HANDLER_FAILED

log = structlog.get_logger("steplane.proxy")

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
"""RFC 9110 section 9.2.2."""


class Retries:
    """See the module. `chance` gives random numbers from 0 up to 1."""

    def __init__(
        self,
        desk: Desk,
        plans: Plans,
        back_pressure: BackPressure,
        alarms: Alarms,
        tally: Tally,
        clock: Callable[[], float],
        chance: Callable[[], float] = random,
    ) -> None:
        self._desk = desk
        self._back_pressure = back_pressure
        self._alarms = alarms
        self._tally = tally
        self._clock = clock
        self._chance = chance
        self._plans = plans

    def reconfigure(self, plans: Plans) -> None:
        """Go by these from now on."""
        self._plans = plans

    def plan(self, call: Call) -> Plan:
        """What holds for a request where it was sent last."""
        decision = call.decision
        assert decision is not None
        assert decision.pool is not None
        return self._plans.of(decision.rule, decision.pool.name)

    def replaces(self, exchange: Exchange, call: Call, attempt: Attempt, failure: Failure) -> bool:
        """Whether an attempt that a stale connection has failed may be made again on a new one, at the same replica."""
        if reason_of_failure(failure.kind.value) is not Reason.stale or call.stale_retried or not exchange.replayable:
            return False
        if Reason.stale not in self.plan(call).retry.on:
            return False
        call.stale_retried = True
        self._tally.retries[attempt.pool.name, Reason.stale.value] += 1
        return True

    def after_failure(self, exchange: Exchange, call: Call, attempt: Attempt, failure: Failure) -> bool:
        """Try again, if that is safe and allowed, after an attempt of which no byte of an answer has come."""
        reason = reason_of_failure(failure.kind.value)
        if reason is None or not exchange.replayable:
            return False
        plan = self.plan(call)
        call.tried = (*call.tried, attempt.link.replica)
        delay_s = self._delay_s(plan, call)
        if delay_s > 0.0 and not attempt.home.can_serve(call.tried):
            call.tried = ()  # after a pause, one that failed may be asked once more
        return self._again(exchange, call, attempt, reason, plan, delay_s, failure)

    def after_answer(
        self, exchange: Exchange, call: Call, attempt: Attempt, outcome: Outcome, status: int, message: bytes
    ) -> bool:
        """Try again, if that is allowed, after an answer that is held back. `message`: all of it."""
        reason = reason_of_status(status)
        if reason is None or outcome is Outcome.over_budget:
            return False
        plan = self.plan(call)
        if reason.is_back_pressure:
            self._back_pressure.heard(attempt.link.replica, status, message, plan.retry.max_retry_after_s)
        call.tried = (*call.tried, attempt.link.replica)
        delay_s = self._delay_s(plan, call)
        if not attempt.home.can_serve(call.tried):
            # Nobody else is left: the same one is asked again, if it said when, or after a pause.
            fits = attempt.link.replica.resting and self._back_pressure.refusal(call, attempt.link.terms, ()) is None
            if not fits and delay_s <= 0.0:
                return False
            call.tried = ()
        return self._again(exchange, call, attempt, reason, plan, delay_s, None)

    def _delay_s(self, plan: Plan, call: Call) -> float:
        back_off = plan.retry.back_off
        return back_off.delay_s(max(1, call.attempts), self._chance()) if back_off.first_s > 0.0 else 0.0

    def _again(
        self,
        exchange: Exchange,
        call: Call,
        attempt: Attempt,
        reason: Reason,
        plan: Plan,
        delay_s: float,
        failure: Failure | None,
    ) -> bool:
        harmless = call.features.api is not Api.other or call.request.method in _IDEMPOTENT
        if not plan.retry.allows(reason, call.attempts, harmless=harmless):
            return False
        timing = call.timing
        at_s = self._clock() + delay_s
        if timing is not None and at_s >= timing.until_s:
            return False
        pool = attempt.pool.name
        # What no replica has begun puts no load on any: an outage's connections are not held against the budget.
        if not reason.is_unprocessed and not plan.budget.take():
            self._tally.retry_budget_exhausted[pool] += 1
            log.warning("retry_budget_exhausted", pool=pool, reason=reason.value)
            return False
        if delay_s <= 0.0:
            self._route(exchange, call, pool, reason, failure)
            return True
        if timing is None:
            timing = call.timing = Timing()
        timing.pause = self._alarms.set(at_s, partial(self._resume, exchange, call, pool, reason, failure))
        return True

    def _route(self, exchange: Exchange, call: Call, pool: str, reason: Reason, failure: Failure | None) -> None:
        attempts = call.attempts
        self._desk.route(exchange, call, failure)
        if call.attempts > attempts or call.ticket is not None:  # somebody has it, or will
            self._tally.retries[pool, reason.value] += 1
            log.info("retried", pool=pool, reason=reason.value, attempts=attempts)

    def _resume(self, exchange: Exchange, call: Call, pool: str, reason: Reason, failure: Failure | None) -> None:
        """The pause before a retry is over."""
        if exchange.state == State.done:
            return
        exchange.client.clock.read()
        try:
            if call.verdict is None and not call.exiled:
                self._desk.ask_again(call)
            self._route(exchange, call, pool, reason, failure)
        except Exception:
            log.exception("retry_failed")
            exchange.reply(HANDLER_FAILED)
