"""One request's way through the gateway: classify, decide, pick a replica, forward; and what happens when that fails.

The handler of the data plane: joins `wire` to `hookcost`, `breaker` and `routing` and owns nothing else. Hot: runs once
per request on the event loop, so what can be computed once per rule, replica or path is kept.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import structlog

from gateway.backpressure import BackPressure
from gateway.breaker.outcome import Outcome, outcome_of_failure, outcome_of_response
from gateway.call import Attempt, Call, Door, Ended, Link, Terms, ask_of, door_of, tenant_of
from gateway.control.tally import Tally
from gateway.deadlines import Deadlines
from gateway.dialect import engine_ids, error_events, given_ids, has_ended, overridden, spliced
from gateway.edits import Edits
from gateway.feed.running import RunningRequests
from gateway.hedges import Hedges
from gateway.hookcost import Classification, Classifier, Turns
from gateway.hookcost.classification import Refusal
from gateway.hookcost.classify import take_turn
from gateway.hookcost.cost import FREE
from gateway.hookcost.features import Api, Features
from gateway.hookcost.schemaspelling import SchemaSpelling
from gateway.models import Models
from gateway.oversight import Oversight
from gateway.quarantine import Quarantine
from gateway.requestids import RequestIds
from gateway.retries import Retries
from gateway.retry.alarms import Alarms
from gateway.retry.plan import Plans
from gateway.routing.actions import Actions, Shadow
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision, Rejection, Router
from gateway.shadows import Shadows
from gateway.tenantgate import TenantGate
from gateway.tenants.keys import without_keys
from gateway.tenants.register import Register
from gateway.waitingroom import WaitingRoom
from gateway.wire.exchange import Exchange, State
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import HANDLER_FAILED, Reply, error_reply
from gateway.wire.race import Racer

log = structlog.get_logger("steplane.proxy")

_OK: Final = Outcome.ok
_ATTEMPTS: Final = b"x-steplane-attempts: %d\r\n"
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_LEFT_RUNNING = frozenset((FailureKind.first_byte_timeout, FailureKind.bad_response))
"""Failures in which we gave up on an engine that may still work on the request."""
_NOT_THE_UPSTREAMS = frozenset((FailureKind.ended, FailureKind.deadline_exceeded, FailureKind.draining))
"""Ends of answers that we have made ourselves."""
_HELD = frozenset((429, 500, 502, 503, 504))
"""Answers that another replica, or quarantine, may better."""
_STEERS: Final = Refusal(403, "control_path", "this path steers the engine and is not open to the gateway's clients")
_PASSED_THROUGH: Final = Classification(Features(), FREE, "s1-0000000000000000")
"""Of everything that is not a request for generation: nothing in it reaches the step thread."""


class Aborter(Protocol):
    """Tells an engine to drop a request that nobody waits for any more."""

    def abort(self, replica: Replica, ids: tuple[str, ...]) -> None:
        """By ids that nobody else's begins with."""

    def abort_exactly(self, replica: Replica, ids: tuple[str, ...]) -> None:
        """By any ids, where the replica takes aborts for just those; else not at all."""


class Sightings(Protocol):
    """Wants to know what requests of barred signatures look like."""

    def seen(self, classification: Classification, path: str, body: bytes) -> None: ...


class Grammars(Protocol):
    """Wants to know which grammars are asked for."""

    def sent(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """A request with one is on its way to a replica."""


class Finished(Protocol):
    """Wants to hear of each request that is over."""

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None: ...


class Refusals(Protocol):
    """Is told when a replica does not accept connections."""

    def report_refused(self, replica: Replica) -> None: ...


class Tracer(Protocol):
    """Takes down when a request came how far; tells engines whose request it is."""

    def began(self, exchange: Exchange, call: Call) -> None:
        """It is classified."""

    def decided(self, call: Call) -> None:
        """Its decision has been made."""

    def sent(self, call: Call, attempt: Attempt, lines: bytes) -> bytes:
        """An attempt begins. The header lines to send in the place of `lines`."""

    def ended(self, call: Call, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt is over."""


class Proxy:
    """A `wire.Handler` that routes by hook cost."""

    def __init__(
        self,
        router: Router,
        links: Mapping[Replica, Link],
        terms: Mapping[str, Terms],
        classifier: Classifier,
        oversight: Oversight,
        running: RunningRequests,
        tenants: Register,
        tally: Tally,
        aborter: Aborter,
        refusals: Refusals,
        plans: Plans,
        *,
        refuses_control: bool = True,
    ) -> None:
        """`terms` are by the name of the pool. `refuses_control`: paths that steer an engine are refused."""
        self._oversight = oversight
        self._blended = oversight.book.blended
        self._verdict_on = oversight.trust.verdict
        self._barred = oversight.trust.barred_signatures
        self._barred_tenants = oversight.trust.barred_tenants
        self._running = running
        self._run = running.add
        self._drop = running.drop
        self._tenants = tenants
        self.models: Models | None = None
        """What is served under which names; None where that is the replicas' alone to say."""
        self.gate: TenantGate | None = None
        """What tenants may ask for; None while none of them is limited in anything."""
        self.shadows: Shadows | None = None
        """Sends copies for rules that want some."""
        self.witnesses: tuple[Finished, ...] = ()
        """Told of each request that is over; nobody unless somebody looks."""
        self.turned_away: Callable[[Exchange], None] | None = None
        """Told of each that was answered without being classified."""
        self.tracer: Tracer | None = None
        """None while nothing is traced."""
        self.sightings: Sightings | None = None
        self.grammars: Grammars | None = None
        """None while no pool warms its replicas up."""
        self.tail: Finished | None = None
        """Told of requests while somebody watches them; else None."""
        self._loop = asyncio.get_running_loop()
        self._tally = tally
        self._aborter = aborter
        self._refusals = refusals
        self._ids = RequestIds()
        self._spelling = SchemaSpelling()
        clock = self._loop.time
        self._alarms = Alarms(clock, self._loop.call_at, _alarm_failed)
        self._back_pressure = BackPressure(self._alarms, clock, time.time)
        self._retries = Retries(self, plans, self._back_pressure, self._alarms, tally, clock)
        self._deadlines: Deadlines | None = None
        self._hedges: Hedges | None = None
        self._waiting = WaitingRoom(self, router, terms, self._back_pressure)
        self._quarantine = Quarantine(self, router, terms, oversight, running, tally)
        self._edits = Edits(classifier, self._experienced)
        self._decision_lines: dict[Decision, bytes] = {}
        self._refuses_control = True
        self._router = router
        self._links = links
        self._begin = classifier.begin
        self._classifier = classifier
        self.reconfigure(router, links, terms, classifier, plans, refuses_control=refuses_control)

    def reconfigure(
        self,
        router: Router,
        links: Mapping[Replica, Link],
        terms: Mapping[str, Terms],
        classifier: Classifier,
        plans: Plans,
        *,
        refuses_control: bool,
    ) -> None:
        """Decide by these from now on. What runs ends on the terms that it began on, and so does what waits.

        A pool that is gone must let go of who waits for it (`AdmissionQueue.close`) after this.
        """
        self._refuses_control = refuses_control
        self._router = router
        self._links = links
        self._begin = classifier.begin
        self._classifier = classifier
        self._waiting.reconfigure(router, terms)
        self._quarantine.reconfigure(router, terms)
        self._retries.reconfigure(plans)
        self._edits.reconfigure(classifier)
        self._set_timing(plans)
        self._decision_lines.clear()

    def _set_timing(self, plans: Plans) -> None:
        """Look after deadlines and hedges only where there can be some; those that run go on under the old plans."""
        alarms, tally, clock = self._alarms, self._tally, self._loop.time
        self._deadlines = Deadlines(self, plans, alarms, tally, clock) if plans.has_deadlines else None
        if plans.has_hedges:
            self._hedges = Hedges(self, plans, self._back_pressure, alarms, tally, clock)
        elif self._hedges is not None:
            self._hedges.retire()

    def look_at(self, look: Callable[[Classification, str, bytes], None] | None) -> None:
        """Have `look` see each request for generation, its path and its body as it comes; None: nobody.

        Until the next reload.
        """
        begin = self._classifier.begin
        if look is None:
            self._begin = begin
            return

        def looked_at(path: str, body: bytes) -> Classification | Turns:
            found = begin(path, body)
            if isinstance(found, Classification):
                look(found, path, body)
            return found

        self._begin = looked_at

    def close(self) -> None:
        """Nothing is to happen any more."""
        self._alarms.close()

    def decide(self, request: RouteRequest) -> Decision:
        """Where the rules would send a request now."""
        return self._router.decide(request)

    def priority_of(self, tenant: str) -> int:
        """How soon a tenant's turn comes where requests wait: higher goes first."""
        return self._tenants.profile(tenant).priority

    # --- wire.Handler

    def buffers(self, exchange: Exchange) -> bool:
        """Requests for generation are read whole, everything else streams through.

        So does what is refused for its head: who may ask for nothing need not send it, and we need not keep it.
        """
        door = door_of(exchange.head, self._tenants)
        if not door.generates or self.gate is None or not self._tenants.require_key:
            return door.generates
        return tenant_of(exchange.head, door, self._tenants) != ""

    def handle(self, exchange: Exchange) -> None:
        """Classify and route."""
        engine_id = self._ids.new()
        request_id = exchange.request_id
        if not request_id or not _REQUEST_ID.fullmatch(request_id):
            exchange.request_id = request_id = engine_id.encode()
        exchange.response_lines = b"x-request-id: %b\r\n" % request_id
        door = door_of(exchange.head, self._tenants)
        if not (exchange.buffered and door.generates):
            if door.steers and self._refuses_control:
                self._refuse(exchange, _STEERS)
                return
            tenant = tenant_of(exchange.head, door, self._tenants)
            request = RouteRequest(door.method, door.path, _PASSED_THROUGH, tenant, exchange.head)
            call = Call(request, engine_id, "", costly=False)
            exchange.context = call
            if self.tracer is not None:
                self.tracer.began(exchange, call)
            if self.gate is not None:
                call.tenant = tenant
                if not self._admitted(exchange, call, self.gate):
                    return
            if door.lists_models and self.models is not None:
                models = self.models.answer(door.path)
                if models is not None:
                    exchange.reply(models)
                    return
            self.route(exchange, call)
            return
        classification = self._begin(door.path, exchange.body)
        if isinstance(classification, Classification):
            self._route(exchange, door, engine_id, classification)
        else:
            self._loop.call_soon(self._take_turn, exchange, door, engine_id, classification)

    def holds(self, exchange: Exchange, status: int) -> bool:
        """Errors of engines are looked at before they go out: another replica may do better."""
        return status in _HELD and exchange.context.attempts > 0

    def refused(self, exchange: Exchange, status: int, message: bytes) -> None:
        """An engine would not, or could not: try elsewhere where that may help."""
        call: Call = exchange.context
        attempt = call.attempt
        assert attempt is not None
        outcome = outcome_of_response(status, message)
        if status >= 500:
            self._tally.note_error(attempt.link.replica.name, "answered", f"answered {status}")
        self.end_attempt(call, attempt, outcome)
        if outcome is Outcome.over_budget:
            self.stop_hedge(call)
            if call.costly and self._quarantine.can_exile(attempt):
                self._quarantine.exile(exchange, call)
            else:
                exchange.pass_on()
            return
        if self._hedges is not None and self._hedges.takes_over(call, attempt):
            return
        if not self._retries.after_answer(exchange, call, attempt, outcome, status, message):
            exchange.pass_on()

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """Try once more where that is safe, else answer for the upstream."""
        call: Call = exchange.context
        attempt = call.attempt
        assert attempt is not None
        self.end_attempt(call, attempt, outcome_of_failure(failure.kind.value))
        self.note_failure(attempt, failure)
        if self._hedges is not None and self._hedges.takes_over(call, attempt):
            return
        if self._retries.replaces(exchange, call, attempt, failure):
            # The pool's other connections are as old: this retry opens a new one.
            link = attempt.link
            link.upstream.drop_idle()
            attempt.book_again()
            self._forward(exchange, call, link)
        elif not self._retries.after_failure(exchange, call, attempt, failure):
            self._give_up(exchange, failure)

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        """The error event that ends a broken stream, in the client's dialect."""
        call: Call = exchange.context
        return error_events(call.features.api, failure.detail, _code_of(failure))

    def cut(self, exchange: Exchange, failure: Failure) -> None:
        """End it here and at its engine."""
        call: Call | None = exchange.context
        if call is None:
            exchange.reply(error_reply(failure.status, failure.detail, _code_of(failure)))
        else:
            self.end(exchange, call, failure)

    def finished(self, exchange: Exchange) -> None:
        """Count, and tell the engine if nobody waits for the answer."""
        call: Call | None = exchange.context
        if call is None:
            if self.turned_away is not None:
                self.turned_away(exchange)
            return
        attempt = call.attempt
        decision = call.decision
        if exchange.client_left and has_ended(exchange.last_read):
            exchange.client_left = False
        if call.timing is not None:
            self.stop_hedge(call)
            call.timing.cancel()
        if attempt is not None:
            self._finish_attempt(exchange, call, attempt)
        else:
            self._waiting.leave(exchange, call)
        if call.offered and not call.attempts:  # a probe that never ran has ended, too
            self._oversight.trust.finished(call.engine_id, call.signature, answered=False)
        if call.meter is not None and self.gate is not None:
            self.gate.finished(exchange, call, call.meter)
        if decision is not None:
            first = exchange.first_byte_at
            ttft_s = first - exchange.started_at if first else -1.0
            replica = None if attempt is None else attempt.link.replica
            self._tally.finished(decision, exchange.status, exchange.client_left, ttft_s, replica)
        if self.witnesses:
            now_s = exchange.client.clock.at
            for witness in self.witnesses:
                witness.finished(exchange, call, attempt, now_s)
        if self.tail is not None:
            self.tail.finished(exchange, call, attempt, self._loop.time())

    # --- what has tripped

    def evict(self, signature: str) -> None:
        """A signature has tripped: nothing of it goes on where it harms others, nor waits to do so."""
        if signature == _PASSED_THROUGH.signature:
            return  # somebody quarantined it by hand: what asks for no generation has nothing to answer for
        if self.sightings is not None:
            self._show(signature, self.sightings)
        self._quarantine.evict(signature)
        self._waiting.recall(signature)

    def _show(self, signature: str, sightings: Sightings) -> None:
        """What has tripped may never come again: have what runs of it looked at."""
        for _, running in self._running.of_signature(signature):
            if isinstance(running, Attempt):
                call = running.call
                sightings.seen(call.classification, call.request.path, running.exchange.body)
                return

    # --- inside, and what the waiting room and the quarantine ask for (desk.py)

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
            self._refuse(exchange, refusal)
            return
        if self.models is not None and self.models.names_matter:
            named = self._named(exchange, door, classification, self.models)
            if named is None:
                return
            classification = named
        predicted = classification.cost
        costly = predicted is not FREE and predicted.costly
        if costly:
            cost = self._blended(classification)
            if cost is not predicted:
                classification = classification.priced(cost)
        tenant = tenant_of(exchange.head, door, self._tenants)
        request = RouteRequest(door.method, door.path, classification, tenant, exchange.head)
        call = Call(request, engine_id, tenant, costly)
        exchange.context = call
        if self.tracer is not None:
            self.tracer.began(exchange, call)
        if self.gate is not None and not self._admitted(exchange, call, self.gate):
            return
        signature = classification.signature
        if signature in self._barred or tenant in self._barred_tenants:
            call.verdict = self._verdict_on(signature, tenant, predicted)
            if self.sightings is not None:
                self.sightings.seen(classification, door.path, exchange.body)
        self.route(exchange, call)

    def _named(
        self, exchange: Exchange, door: Door, classification: Classification, models: Models
    ) -> Classification | None:
        """The request with its model's real name; None: it has been answered, for nobody serves that model."""
        body = models.renamed(classification.features.model, exchange.body)
        if body is not None:
            exchange.body = body
            classification = self._classifier.classify(door.path, body)
        refusal = models.refusal(classification.features.model)
        if refusal is None:
            return classification
        self._tally.refused("model_not_found")
        exchange.reply(refusal)
        return None

    def _admitted(self, exchange: Exchange, call: Call, gate: TenantGate) -> bool:
        """Whether its tenant may ask for it; if not, it has been answered."""
        denial = gate.check(call)
        if denial is None:
            return True
        self._tally.refused(denial.code)
        exchange.reply(denial.reply)
        return False

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        """Answer with an error instead of routing."""
        self._tally.refused(refusal.code)
        exchange.reply(error_reply(refusal.status, refusal.message, refusal.code, param=refusal.param))

    def route(self, exchange: Exchange, call: Call, failure: Failure | None = None) -> None:
        """Route, or route again: a failed attempt may have changed which pools are available."""
        decision = self._router.decide(call.request)
        if decision.actions is not None or call.edit is not None:
            self._edit(exchange, call, decision)
        if call.verdict is not None or call.exiled:
            judged = self._quarantine.judged(exchange, call, decision)
            if judged is None:
                return
            decision = judged
        call.decision = decision
        if self.tracer is not None:
            self.tracer.decided(call)
        if self._deadlines is not None:
            self._deadlines.begin(exchange, call, decision)
        pool = decision.pool
        if pool is None:
            assert decision.rejection is not None
            self.reject(exchange, decision, decision.rejection)
            return
        if pool.backend is not None and call.structured:
            call.price_for(pool.backend)
        if pool.balancer is None:
            replica = pool.admit(call.step_us, call.structured, call.tried)
        else:
            replica = pool.admit_for(ask_of(exchange, call), call.step_us, call.structured, call.tried)
        if replica is not None:
            self.send(exchange, call, replica)
        elif failure is None or pool.can_serve(call.tried):
            self._waiting.enter(exchange, call, decision)
        else:
            self._give_up(exchange, failure)

    def _edit(self, exchange: Exchange, call: Call, decision: Decision) -> None:
        """Give the call the body that its rule makes of it. What that asks for may be quarantined, or not."""
        became_another = self._edits.prepare(exchange, call, decision)
        if became_another and not call.offered and not call.exiled:
            self.ask_again(call)

    def _experienced(self, classification: Classification) -> Classification:
        """What was observed is counted in."""
        predicted = classification.cost
        cost = self._blended(classification) if predicted.costly else predicted
        return classification if cost is predicted else classification.priced(cost)

    def reject(self, exchange: Exchange, decision: Decision, rejection: Rejection) -> None:
        """Answer that nobody can take it."""
        lines = b"x-request-id: %b\r\nx-steplane-route: %b\r\n"  # nothing of an attempt that failed before
        exchange.response_lines = lines % (exchange.request_id, decision.rule.encode())
        wait_s = rejection.retry_after_s
        headers = b"retry-after: %d\r\n" % wait_s if wait_s else b""
        status, message, code = rejection.status, rejection.message, rejection.code
        exchange.reply(error_reply(status, message, code, headers=headers, param=rejection.param))

    def send(self, exchange: Exchange, call: Call, replica: Replica) -> None:
        """It is booked on a replica: forward it."""
        call.attempts += 1
        if call.structured and call.attempts == 1 and self.grammars is not None:
            self.grammars.sent(exchange, call, replica)
        self._forward(exchange, call, self._links[replica])
        if self._hedges is not None:
            self._hedges.watch(exchange, call)
        actions = call.decision.actions if call.decision is not None else None
        if actions is not None and actions.shadow is not None and call.attempts == 1:
            self._shadow(exchange, call, actions, actions.shadow)

    def _shadow(self, exchange: Exchange, call: Call, actions: Actions, shadow: Shadow) -> None:
        """Send a copy of a generation to another pool, if there is somebody who does that."""
        pool = self._router.pools.get(shadow.pool)
        if self.shadows is None or pool is None or not exchange.buffered or call.features.api is Api.other:
            return
        allowed = call.request.pools
        if allowed is not None and shadow.pool not in allowed:
            self._tally.shadows[shadow.pool, "not_allowed"] += 1
            return
        body = exchange.body if call.edit is None else call.edit.body
        lines = exchange.head.lines
        if self._tenants.holds_keys:
            lines = without_keys(lines)
        lines = self._edits.head_lines(actions, lines)
        target = exchange.head.target.decode("latin-1")
        self.shadows.send(shadow, pool, target, lines, body, call.step_us, call.structured)

    def _forward(self, exchange: Exchange, call: Call, link: Link) -> None:
        decision = call.decision
        assert decision is not None
        assert decision.pool is not None
        attempt = Attempt(exchange, call, link, decision.pool, call.engine_id, exchange.client.clock.at)
        attempt.guest_of = decision.guest_of
        call.attempt = attempt
        self._dispatch(exchange, call, attempt, decision)

    def race(self, exchange: Exchange, call: Call, replica: Replica, racer: Racer) -> Attempt:
        """It is booked on a second replica: send it there by `racer`, under an id of its own."""
        decision, link = call.decision, self._links[replica]
        call.attempts += 1
        assert decision is not None
        assert decision.pool is not None
        attempt = Attempt(exchange, call, link, decision.pool, self._ids.new(), exchange.client.clock.at)
        racer.run(partial(self._dispatch, racer, call, attempt, decision))
        return attempt

    def _dispatch(self, sender: Exchange, call: Call, attempt: Attempt, decision: Decision) -> None:
        """Have an attempt on its way: by its exchange, or by another one that races it."""
        exchange = attempt.exchange
        head_lines, request_lines, body, cut, tail, response_lines = self._dressed(exchange, call, attempt, decision)
        self._enrol(exchange, call, attempt)
        if sender is exchange:
            self.listen(exchange, call, attempt)
        sender.forward(
            attempt.link.upstream,
            headers=request_lines,
            body=body,
            cut=cut,
            tail=tail,
            response_lines=response_lines,
            head_lines=head_lines,
        )

    def _enrol(self, exchange: Exchange, call: Call, attempt: Attempt) -> None:
        """Let those know that it runs who want to find it again."""
        if not attempt.given:
            self._run(attempt.engine_id, attempt)
        itl = attempt.link.itl
        if itl is not None and itl.on and exchange.buffered:
            attempt.gaps = itl.began(attempt, streams=call.features.stream)

    def listen(self, exchange: Exchange, call: Call, attempt: Attempt) -> None:
        """Tell those who want to hear of it of every read of the attempt's answer."""
        if attempt.gaps is not None:
            exchange.on_read = attempt.gaps.chunk
        if call.meter is not None:
            call.meter.begin(exchange, watched=attempt.watched)

    def _dressed(
        self, exchange: Exchange, call: Call, attempt: Attempt, decision: Decision
    ) -> tuple[bytes, bytes, bytes | None, int, bytes, bytes]:
        """What an attempt is sent with, and its answer.

        Lines in the place of the client's, further lines, a body if there is one here, how much of it is sent (-1: all)
        and what behind it, response lines.
        The one place where a request and its answer are edited: by the decision, and by the replica's engine.
        """
        link = attempt.link
        request_lines = b"x-request-id: %b\r\n" % exchange.request_id
        response_lines = b"%b%b%b" % (self._lines_of(decision), link.response_line, request_lines)
        if call.limit_lines:
            response_lines += call.limit_lines
        if call.attempts > 1:
            response_lines += _ATTEMPTS % call.attempts
        head_lines = exchange.head.lines
        if link.terms.credentials or self._tenants.holds_keys:
            head_lines = without_keys(head_lines)
        if self._deadlines is not None:
            head_lines = self._deadlines.passed_on(call, head_lines)
        if decision.actions is not None:
            head_lines = self._edits.head_lines(decision.actions, head_lines)
            response_lines += self._edits.response_lines(decision.actions, call)
        if self.tracer is not None:
            head_lines = self.tracer.sent(call, attempt, head_lines)
        if not exchange.buffered:
            return head_lines, request_lines + link.terms.credentials, None, -1, b"", response_lines
        source = exchange.body if call.edit is None else call.edit.body
        if call.structured and attempt.pool.spells_schemas:
            source = self._spelling.apply(call.features.api, source) or source
        cut, tail = spliced(source, call.features, link.replica.engine, attempt.engine_id)
        if cut < 0:
            cut, tail, request_lines = self._identified(exchange, call, attempt, source, request_lines)
        return head_lines, request_lines + link.terms.credentials, source, cut, tail, response_lines

    def _identified(
        self, exchange: Exchange, call: Call, attempt: Attempt, source: bytes, request_lines: bytes
    ) -> tuple[int, bytes, bytes]:
        """How much of the body is sent, what behind it, and request lines, where no id of ours is `spliced` into it.

        A client may choose the id, but not one that is in use: what it costs would be put down to another.
        """
        engine = attempt.link.replica.engine
        features = call.features
        given = given_ids(source, features, engine, exchange.request_id)
        if any(self._running.known(rid) for rid in given):
            if engine == "vllm":
                return -1, b"", b"x-request-id: %b\r\n" % attempt.engine_id.encode()
            cut, tail = overridden(source, b"rid", attempt.engine_id)
            return cut, tail, request_lines
        if given and given != (attempt.engine_id,):
            attempt.given = given
            for rid in given:
                self._running.add_given(rid, attempt)
        elif engine == "sglang" and not given:
            request_lines = b"%bx-steplane-rid: %b\r\n" % (request_lines, attempt.engine_id.encode())
        return -1, b"", request_lines

    def _finish_attempt(self, exchange: Exchange, call: Call, attempt: Attempt) -> None:
        """The exchange is over while its attempt ran."""
        replica = attempt.link.replica
        failure = exchange.failure
        if failure is not None:
            outcome = Outcome.unknown
            if failure.kind not in _NOT_THE_UPSTREAMS:
                outcome = outcome_of_failure(failure.kind.value)
                self.abort(attempt)
                self._tally.upstream_error(replica.pool, replica.name, failure.kind, failure.detail)
                log.warning("response_broken", replica=replica.name, detail=failure.detail)
        elif exchange.client_left:
            outcome = Outcome.unknown
            self.abort(attempt)
        elif exchange.status >= 400 or call.features.stream:
            outcome = outcome_of_response(exchange.status, exchange.last_read)
        else:
            outcome = _OK
        self.end_attempt(call, attempt, outcome)

    def end_attempt(self, call: Call, attempt: Attempt, outcome: Outcome) -> None:
        """Give back what was booked, and say what came of it to those who judge."""
        link = attempt.link
        replica = link.replica
        itl = link.itl
        if itl is not None and itl.on and attempt.exchange.buffered:
            itl.ended(attempt, attempt.gaps)
            if call.attempt is attempt:
                attempt.exchange.on_read = None
        if call.attempt is attempt:
            call.attempt = None
        if self.tracer is not None:
            self.tracer.ended(call, attempt, outcome)
        breaker = link.terms.breaker
        if outcome is _OK and breaker.calm:
            link.answers.answered += 1
        else:
            breaker.observe(replica.name, outcome, call.signature, attempt.received_s)
        if attempt.given:
            for rid in attempt.given:
                self._running.discard(rid, attempt, Ended(attempt))
        elif call.costly:
            self._running.discard(attempt.engine_id, attempt, Ended(attempt))
        else:
            self._drop(attempt.engine_id, None)  # nobody will ask what it cost
        if call.costly:
            watched = attempt.watched and itl is not None and not itl.on
            answered = outcome is _OK
            self._oversight.trust.finished(attempt.engine_id, call.signature, answered=answered, watched=watched)
        elif outcome is _OK and call.features.stream:
            seconds = attempt.exchange.first_byte_at - attempt.received_s
            breaker.observe_first_byte(replica.name, seconds, attempt.received_s)
        attempt.release()

    def abort(self, attempt: Attempt) -> None:
        """Tell the engine that nobody waits for the answer.

        By an id that a client chose only where that means exactly this one: SGLang aborts all whose ids begin with it.
        """
        call, replica = attempt.call, attempt.link.replica
        ids = engine_ids(call.features, replica.engine, attempt.engine_id)
        ids += self._running.sequence_ids(attempt.engine_id)
        if ids and replica.engine == "sglang":
            self._aborter.abort(replica, ids)
        if attempt.given:
            known = [self._running.sequence_ids(rid) or (rid,) for rid in attempt.given]
            self._aborter.abort_exactly(replica, tuple([each for every in known for each in every]))

    def note_failure(self, attempt: Attempt, failure: Failure) -> None:
        """An attempt has failed on the wire: say so to all whom it concerns."""
        replica = attempt.link.replica
        self._tally.upstream_error(replica.pool, replica.name, failure.kind, failure.detail)
        log.warning("attempt_failed", replica=replica.name, kind=failure.kind.value, detail=failure.detail)
        if failure.kind in _LEFT_RUNNING:
            self.abort(attempt)
        if failure.kind is FailureKind.connect_failed:
            self._refusals.report_refused(replica)

    def stop_hedge(self, call: Call) -> None:
        """End what runs beside the first attempt, if anything does."""
        if self._hedges is not None:
            self._hedges.stop(call)

    def ask_again(self, call: Call) -> None:
        """Some time has passed: see whether it is quarantined now."""
        classification = call.classification
        call.verdict = self._verdict_on(classification.signature, call.tenant, classification.cost)

    def end(self, exchange: Exchange, call: Call, failure: Failure) -> None:
        """Its time is over, wherever it is: end it here and at its engine."""
        self.stop_hedge(call)
        attempt = call.attempt
        if attempt is None:
            self._waiting.leave(exchange, call)
        else:
            self.abort(attempt)
            if not exchange.withdraw():
                exchange.end(failure)
                return
            self.end_attempt(call, attempt, Outcome.unknown)
        self._give_up(exchange, failure)

    def _give_up(self, exchange: Exchange, failure: Failure) -> None:
        call: Call = exchange.context
        reply = error_reply(failure.status, failure.detail, _code_of(failure))
        if call.decision is None or call.decision.pool is None:
            exchange.reply(reply)
        else:
            self.answer(exchange, call.decision, reply)

    def answer(self, exchange: Exchange, decision: Decision, reply: Reply) -> None:
        """Answer for a pool that was chosen, with the headers that say so."""
        call: Call = exchange.context
        lines = b"x-request-id: %b\r\n%b" % (exchange.request_id, self._lines_of(decision))
        exchange.response_lines = lines + (_ATTEMPTS % call.attempts if call.attempts > 1 else b"")
        exchange.reply(reply)

    def _lines_of(self, decision: Decision) -> bytes:
        """The response headers that say what was decided."""
        lines = self._decision_lines.get(decision)
        if lines is None:
            assert decision.pool is not None
            pool, rule = decision.pool.name.encode(), decision.rule.encode()
            lines = self._decision_lines[decision] = b"x-steplane-pool: %b\r\nx-steplane-route: %b\r\n" % (pool, rule)
        return lines


def _code_of(failure: Failure) -> str:
    """What a client's program is told of a failure."""
    if failure.kind is FailureKind.ended:
        return "step_budget_exceeded"
    if failure.kind is FailureKind.deadline_exceeded or failure.kind is FailureKind.draining:
        return failure.kind.value
    return f"upstream_{failure.kind.value}"


def _alarm_failed(error: Exception) -> None:
    log.error("alarm_failed", exc_info=error)
