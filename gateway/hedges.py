"""A second replica asked beside the first, where no byte of an answer has come for too long; the first answer wins.

Made only where some pool or rule has hedges. Owns when one begins and how it ends; the race itself is wire/race.py.
Never for requests that are quarantined, were tried before, or were not read whole; each takes from its own share and
from the retry budget.
"""

from collections.abc import Callable
from functools import partial

import structlog

from gateway.backpressure import BackPressure
from gateway.breaker.outcome import Outcome, outcome_of_failure, outcome_of_response
from gateway.call import Attempt, Call, Timing
from gateway.control.tally import Tally
from gateway.desk import Desk
from gateway.hookcost.features import Api
from gateway.retry.alarms import Alarms
from gateway.retry.plan import Plan, Plans
from gateway.wire.exchange import Exchange, State
from gateway.wire.failure import Failure
from gateway.wire.race import Racer

log = structlog.get_logger("steplane.proxy")


class Rival:
    """An attempt that runs beside the first one, and what the first one's reads were told to."""

    __slots__ = ("attempt", "exchange", "inner", "racer", "stop")

    def __init__(self, exchange: Exchange, attempt: Attempt, racer: Racer, stop: Callable[[], None]) -> None:
        self.exchange = exchange
        self.attempt = attempt
        self.racer = racer
        self.stop = stop
        self.inner = exchange.on_read
        exchange.on_read = self.read

    def read(self, now_s: float) -> None:
        """Something of the first one's answer has come: unless that is held back, the race is over."""
        if self.inner is not None:
            self.inner(now_s)
        if self.exchange.state >= State.responding:
            self.stop()

    def part(self) -> None:
        """Give the first one's reads back to whom they were told to."""
        if self.exchange.on_read == self.read:
            self.exchange.on_read = self.inner


class Hedges:
    """See the module; a `wire.race.Judge`."""

    def __init__(
        self,
        desk: Desk,
        plans: Plans,
        back_pressure: BackPressure,
        alarms: Alarms,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self._desk = desk
        self._plans = plans
        self._back_pressure = back_pressure
        self._alarms = alarms
        self._tally = tally
        self._clock = clock
        self._retired = False

    def retire(self) -> None:
        """No rule or pool has hedges any more: begin none; those that run are looked after."""
        self._retired = True

    def watch(self, exchange: Exchange, call: Call) -> None:
        """An attempt was sent: look after it when its time for a first byte is over."""
        attempt, decision = call.attempt, call.decision
        if self._retired or attempt is None or decision is None:
            return
        if decision.guest_of is not None:  # there is no room to ask twice
            return
        if call.attempts > 1 or call.features.api is Api.other:
            return
        plan = self._plans.of(decision.rule, attempt.pool.name)
        hedging = plan.hedging
        if hedging is None or call.verdict is not None or call.exiled or attempt.link.terms.quarantine:
            return
        if call.step_us > hedging.policy.max_step_us or not exchange.buffered:
            return
        after_s = hedging.after_s()
        if after_s is None:
            return
        timing = call.timing
        if timing is None:
            timing = call.timing = Timing()
        timing.hedge = self._alarms.set(self._clock() + after_s, partial(self._late, exchange, call, attempt, plan))

    def takes_over(self, call: Call, attempt: Attempt) -> bool:
        """The first attempt has failed; whether one that ran beside it is the request's only one now."""
        rival = _taken(call)
        if rival is None:
            return False
        self._tally.hedges[attempt.pool.name, "took_over"] += 1
        call.tried = (*call.tried, attempt.link.replica)
        self._settle(rival.exchange, call, rival)
        rival.racer.promote()
        return True

    def stop(self, call: Call) -> None:
        """The second attempt is not needed any more: end it here and at its engine."""
        rival = _taken(call)
        if rival is None:
            return
        rival.part()
        rival.racer.stop()
        self._desk.abort(rival.attempt)
        self._desk.end_attempt(call, rival.attempt, Outcome.unknown)
        self._tally.hedges[rival.attempt.pool.name, "lost"] += 1

    # --- wire.race.Judge

    def won(self, racer: Racer) -> None:
        """The second attempt answers first."""
        exchange = racer.first
        call: Call = racer.context
        first, rival = call.attempt, _taken(call)
        assert first is not None
        assert rival is not None
        self._desk.abort(first)
        self._desk.end_attempt(call, first, Outcome.unknown)
        self._settle(exchange, call, rival)
        self._tally.hedges[rival.attempt.pool.name, "won"] += 1

    def beaten(self, racer: Racer, failure: Failure) -> None:
        """The second attempt failed."""
        self._fail(racer, outcome_of_failure(failure.kind.value), failure)

    def turned_down(self, racer: Racer, status: int, message: bytes) -> None:
        """The second attempt was turned down."""
        call: Call = racer.context
        rival = None if call.timing is None else call.timing.rival
        outcome = outcome_of_response(status, message)
        if rival is not None and outcome is Outcome.back_pressure:
            assert call.decision is not None
            plan = self._plans.of(call.decision.rule, rival.attempt.pool.name)
            self._back_pressure.heard(rival.attempt.link.replica, status, message, plan.retry.max_retry_after_s)
        self._fail(racer, outcome, None)

    # --- inside

    def _late(self, exchange: Exchange, call: Call, attempt: Attempt, plan: Plan) -> None:
        """The time for a first byte is over."""
        if call.attempt is not attempt or exchange.state >= State.responding or plan.hedging is None:
            return
        pool = attempt.pool
        excluded = (*call.tried, attempt.link.replica)
        if not pool.can_serve(excluded):
            self._tally.hedges[pool.name, "no_replica"] += 1
            return
        if not plan.hedging.take():
            self._tally.hedges[pool.name, "over_share"] += 1
            return
        if not plan.budget.take():
            self._tally.retry_budget_exhausted[pool.name] += 1
            return
        replica = pool.admit(call.step_us, call.structured, excluded)
        if replica is None:
            self._tally.hedges[pool.name, "no_replica"] += 1
            return
        exchange.client.clock.read()
        racer = Racer(exchange, self)
        second = self._desk.race(exchange, call, replica, racer)
        timing = call.timing
        assert timing is not None
        timing.rival = Rival(exchange, second, racer, partial(self.stop, call))
        self._tally.hedges[pool.name, "sent"] += 1
        log.info("hedged", replica=replica.name, beside=attempt.link.replica.name)

    def _settle(self, exchange: Exchange, call: Call, rival: Rival) -> None:
        """The second attempt is the request's only one now."""
        call.attempt = rival.attempt
        exchange.on_read = None
        self._desk.listen(exchange, call, rival.attempt)

    def _fail(self, racer: Racer, outcome: Outcome, failure: Failure | None) -> None:
        """The second attempt has come to nothing; the first goes on."""
        call: Call = racer.context
        rival = _taken(call)
        if rival is None:
            return
        rival.part()
        self._desk.end_attempt(call, rival.attempt, outcome)
        if failure is not None:
            self._desk.note_failure(rival.attempt, failure)
        self._tally.hedges[rival.attempt.pool.name, "failed"] += 1


def _taken(call: Call) -> Rival | None:
    """What runs beside the call's first attempt, and is not its rival any more; None: nothing does."""
    timing = call.timing
    if timing is None:
        return None
    rival, timing.rival = timing.rival, None
    return rival
