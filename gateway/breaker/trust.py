"""The signature breakers and tenants' breakers together: who may go where the rules say, and who goes to quarantine.

Pure of I/O: what is observed comes in, transitions go out by `notify`; clocks are passed in. One event loop, no locks.
Owns neither the limits (pools have them) nor what is done with a verdict. Hot: `verdict` of a request that is not
quarantined is two look-ups.

Several gateways: `notify` says how a record is to be published, and what the store tells comes back by `apply`. A trip
of our own stands until it is seen to have been overtaken, so that no word that is older than it undoes it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from gateway.breaker.advice import said_of
from gateway.breaker.audit import AuditEntry, AuditLog
from gateway.breaker.crash import CrashWatch, Received
from gateway.breaker.evidence import EvidenceBook
from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.probe import Judgement, Probe, probe_of
from gateway.breaker.record import BREAKER, BreakerRecord, Kind, State
from gateway.breaker.signatures import Breaker, Registry
from gateway.breaker.slope import SlopeWatch
from gateway.breaker.tenant import TenantTrips
from gateway.breaker.transitions import Event, Happening, Publish, after, row_of
from gateway.breaker.trip import Cause, Trip
from gateway.breaker.verdict import ProbeOffer, Verdict, seconds
from gateway.hookcost.cost import HookCost
from gateway.hookcost.observation import (
    CompileObservation,
    Limit,
    OffenceObservation,
    Origin,
    RollupObservation,
    StepObservation,
)

log = structlog.get_logger("steplane.breaker")

Clock = Callable[[], float]

_DUE_AT_ONCE = 200
"""Breakers whose time has come that one `tick` works on: about a millisecond."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A breaker went from `before` to what `record` says. `event`: None when another gateway told of it.

    publish:          how the others are to be told.
    expected_version: of the store, that the transition began from; for `Publish.advance`.
    """

    record: BreakerRecord
    before: State
    event: Event | None
    publish: Publish
    expected_version: int

    @property
    def tripped(self) -> bool:
        """Whether what runs of it outside quarantine must be ended, or left, by the pool's policy."""
        return self.before is State.closed and self.record.state is not State.closed


class Trust:
    """See the module. `clock` is monotonic, `wall` the time of day, both in seconds."""

    def __init__(self, policy: BreakerPolicy, clock: Clock, wall: Clock, notify: Callable[[Transition], None]) -> None:
        self.policy = policy
        self.audit = AuditLog(policy.bounds.audit)
        self._clock = clock
        self._wall = wall
        self._notify = notify
        self._signatures = Registry(Kind.signature, policy.bounds)
        self._tenants = Registry(Kind.tenant, policy.bounds)
        self._barred = self._signatures.barred
        self._barred_tenants = self._tenants.barred
        self._evidence = EvidenceBook(policy.over_budget, policy.aborts, policy.bounds.evidence)
        self._slopes = SlopeWatch(policy.slope)
        self._crashes = CrashWatch(policy.crash, policy.bounds.evidence)
        self._tenant_trips = TenantTrips(policy.escalation)
        self._probes: dict[str, Probe] = {}

    # --- before a request is routed

    def verdict(self, signature: str, tenant: str, predicted: HookCost) -> Verdict | None:
        """None: it goes where the rules say. Else it goes to quarantine or is refused, by the pool's policy.

        A tenant's breaker lets pass what asks for no hook work at all: it can't hurt anybody.
        """
        if signature in self._barred or tenant in self._barred_tenants:
            return self._verdict(signature, tenant, predicted)
        return None

    def probe_leased(self, signature: str, request_id: str) -> bool:
        """The lease that a verdict offered was granted to this request: it is a probe from now on.

        False when it came too late: the signature is not half-open any more, or another probe of it runs.
        """
        breaker = self._barred.get(signature)
        if breaker is None or breaker.record.state is not State.half_open or self._probe_runs(signature):
            return False
        self._probes[request_id] = probe_of(breaker.record, self._clock(), self.policy)
        return True

    # --- what was observed

    def observe_step(self, observation: StepObservation) -> None:
        """One request's part of one step."""
        origin = observation.origin
        own_us, budget_us, hard_us = observation.own_us, origin.budget_us, origin.hard_limit_us
        if origin.signature in self._barred:
            self._observe_probe_step(observation)
        elif not self._may_trip(origin):
            return
        elif hard_us is not None and own_us > hard_us:
            self._trip(observation.origin, Cause.hard_limit, own_us, hard_us, hook=_dearest(observation))
        elif budget_us is not None:
            if own_us > budget_us:
                count = self._evidence.count_step(observation)
                if count is not None:
                    policy, worst_us = self.policy.over_budget, count.worst
                    hook = _dearest(observation)
                    self._trip(origin, Cause.over_budget, worst_us, budget_us, policy.steps, policy.window_s, hook=hook)
                    return
            self._watch_slope(observation, budget_us)

    def observe_rollup(self, observation: RollupObservation) -> None:
        """Several steps of a request added up: says of a probe that it was seen."""
        probe = self._probes.get(observation.origin.request_id) if self._probes else None
        if probe is not None:
            probe.roll_up(observation.steps)

    def observe_compile(self, observation: CompileObservation) -> None:
        """The engine compiled a request's grammar, or gave up."""
        origin, limit_ms = observation.origin, observation.limit_ms
        if origin.signature in self._barred:
            probe = self._probe_of(origin)
            if probe is not None and probe.compile(observation):
                limit_ms = probe.limits.compile_ms if probe.limits.compile_ms is not None else limit_ms
                assert limit_ms is not None
                self._fail_probe(origin, Cause.compile, observation.compile_ms, limit_ms, "ms", limit_ms=limit_ms)
        elif limit_ms is not None and observation.compile_ms > limit_ms and self._may_trip(origin):
            self._trip(origin, Cause.compile, observation.compile_ms, limit_ms, unit="ms", limit_ms=limit_ms)

    def observe_offence(self, observation: OffenceObservation) -> None:
        """The engine's own watchdog named a request."""
        origin = observation.origin
        if origin.signature in self._barred:
            if observation.limit is not Limit.asked and self._probe_of(origin) is not None:
                self._fail_probe(origin, Cause.aborts, 1, 1, "aborts", hook=observation.kind)
        elif self._may_trip(origin):
            hard_us = origin.hard_limit_us
            if observation.limit is Limit.hard and hard_us is not None and observation.own_us > hard_us:
                self._trip(origin, Cause.hard_limit, observation.own_us, hard_us, hook=observation.kind)
            elif self._evidence.count_offence(observation) is not None:
                policy = self.policy.aborts
                self._trip(
                    origin,
                    Cause.aborts,
                    policy.count,
                    policy.count,
                    policy.count,
                    policy.window_s,
                    unit="aborts",
                    hook=observation.kind,
                )

    def finished(self, request_id: str, signature: str, *, answered: bool, watched: bool = False) -> None:
        """A request has ended: for all that are `costly`, and for probes.

        answered: completely, and not with an error.
        watched:  its replica's step feed was read from its beginning to its end.
        """
        now_s = self._clock()
        self._slopes.forget(request_id)
        probe = self._probes.get(request_id) if self._probes else None
        if probe is not None:
            probe.ended_s, probe.answered, probe.watched = now_s, answered, watched
        if answered:
            self._crashes.ended_well(signature, now_s)

    def replica_died(self, replica: str, running: Iterable[Received], elsewhere: Iterable[Received] = ()) -> None:
        """A replica's engine died, not by our doing, with these on it; `elsewhere`: on the others meanwhile."""
        now_s = self._clock()
        here = list(running)
        for request in here:
            if self._probe_of(request.origin) is not None:
                self._fail_probe(request.origin, Cause.crash, 1, 1, "replicas")
        policy = self.policy.crash
        for guilt in self._crashes.died(replica, now_s, here, elsewhere):
            number = len(guilt.replicas)
            if guilt.origin.signature not in self._barred and self._may_trip(guilt.origin):
                self._trip(guilt.origin, Cause.crash, number, policy.replicas, number, policy.window_s, unit="replicas")

    def tick(self) -> None:
        """What happens by the passing of time; call it about once a second."""
        now_s = self._clock()
        for request_id, probe in list(self._probes.items()):
            if probe.is_over(now_s, self.policy):
                del self._probes[request_id]
                self._judge(probe)
        for registry in (self._signatures, self._tenants):
            for breaker in registry.due(now_s, _DUE_AT_ONCE):
                self._come_due(registry, breaker, now_s)

    # --- by hand

    def add(self, kind: Kind, key: str, author: str, reason: str, wait_s: float | None = None) -> BreakerRecord:
        """Quarantine a signature or tenant for `wait_s` seconds (None: as after a trip); then it is probed.

        A pinned one stays pinned. Raises ValueError without an author or for a wait that is not positive.
        """
        if wait_s is not None and not 0 < wait_s < float("inf"):
            raise ValueError(f"a quarantine must last a positive number of seconds, not {wait_s!r}")
        return self._by_hand(kind, key, Event.add, author, reason, wait_s)

    def pin(self, kind: Kind, key: str, author: str, reason: str) -> BreakerRecord:
        """Quarantine a signature or tenant until somebody releases it.

        Raises ValueError without an author, or when as many are pinned as the bound allows.
        """
        registry = self._registry(kind)
        if not registry.may_pin and registry.find_or_new(key).record.state is not State.pinned:
            raise ValueError(f"{self.policy.bounds.pinned} are pinned already, which is the bound: release some first")
        return self._by_hand(kind, key, Event.pin, author, reason)

    def release(self, kind: Kind, key: str, author: str, reason: str) -> BreakerRecord:
        """Let a signature or tenant go at once and forget its trips. Raises ValueError without an author."""
        return self._by_hand(kind, key, Event.release, author, reason)

    # --- between gateways

    def apply(self, version: int, record: BreakerRecord) -> bool:
        """What the store has under a key. Any order and repetition does; True when something changed by it here."""
        registry = self._registry(record.kind)
        breaker = registry.find_or_new(record.key)
        if record == breaker.unconfirmed:
            breaker.unconfirmed = None
            breaker.version = max(breaker.version, version)
            deferred, breaker.deferred = breaker.deferred, None
            return deferred is not None and deferred[0] > version and self._adopt(registry, breaker, *deferred[:2])
        if version <= breaker.version:
            return False
        if breaker.unconfirmed is None:
            return self._adopt(registry, breaker, version, record)
        until_s = self._clock() + self.policy.confirm_s
        breaker.version = version
        breaker.deferred = (version, record, until_s)
        registry.plan(breaker, min(breaker.due_s, until_s))
        return False

    # --- to look at

    def record(self, kind: Kind, key: str) -> BreakerRecord | None:
        """What is known of a signature or tenant; None: nothing is, it is closed."""
        breaker = self._registry(kind).find(key)
        return None if breaker is None else breaker.record

    def snapshot(self) -> list[BreakerRecord]:
        """All that bar somebody, newest first."""
        records = [breaker.record for barred in (self._barred_tenants, self._barred) for breaker in barred.values()]
        return sorted(records, key=lambda record: record.since, reverse=True)

    def status(self) -> dict[str, Any]:
        """How much is kept, for metrics and the dashboard."""
        return {
            "signatures": len(self._barred),
            "tenants": len(self._barred_tenants),
            "closed": self._signatures.closed + self._tenants.closed,
            "evidence": len(self._evidence),
            "probes": len(self._probes),
        }

    # --- inside: verdicts

    def _verdict(self, signature: str, tenant: str, predicted: HookCost) -> Verdict | None:
        now_s = self._clock()
        tenants = self._barred_tenants.get(tenant)
        found = self._asked(self._tenants, tenants, now_s) if tenants is not None and predicted.costly else None
        breaker = self._barred.get(signature)
        if breaker is not None:
            # The signature's own breaker says more, and has probes.
            found = self._asked(self._signatures, breaker, now_s) or found
        return found

    def _asked(self, registry: Registry, breaker: Breaker, now_s: float) -> Verdict | None:
        if breaker.due_s <= now_s:
            self._come_due(registry, breaker, now_s)
        record = breaker.record
        if record.state is State.closed:
            return None
        registry.asked(breaker, now_s)
        if record.state is State.pinned:
            return Verdict(record, seconds(self.policy.pinned_retry_s))
        if record.state is State.open:
            return Verdict(record, seconds(breaker.due_s - now_s))
        return Verdict(record, seconds(breaker.probe_due_s - now_s), self._offer(breaker, now_s))

    def _offer(self, breaker: Breaker, now_s: float) -> ProbeOffer | None:
        policy, record = self.policy.probing, breaker.record
        if now_s < breaker.probe_due_s or now_s - breaker.offered_s < policy.offer_s or self._probe_runs(record.key):
            return None
        breaker.offered_s = now_s
        # All gateways name the same probe alike, and whoever leases it has it to its end.
        return ProbeOffer(
            record.key, f"{record.key}:{record.since:.3f}:{record.probes}", policy.longest_s + policy.settle_s + 1.0
        )

    # --- inside: evidence

    def _may_trip(self, origin: Origin) -> bool:
        return origin.costly and origin.pool != self.policy.quarantine_pool

    def _watch_slope(self, observation: StepObservation, budget_us: float) -> None:
        origin = observation.origin
        rise = self._slopes.add(origin.request_id, observation.own_us, budget_us)
        if rise is not None:
            self._trip(origin, Cause.slope, rise.to_us, budget_us, rise.steps, hook=_dearest(observation))

    def _observe_probe_step(self, observation: StepObservation) -> None:
        origin = observation.origin
        probe = self._probe_of(origin)
        if probe is None:
            return
        own_us, limits = observation.own_us, probe.limits
        hook = _dearest(observation)
        if probe.step(observation, self.policy):
            hard_us, budget_us = limits.hard_limit_us, limits.budget_us
            if hard_us is not None and own_us > hard_us:
                self._fail_probe(origin, Cause.hard_limit, own_us, hard_us, "us", hook=hook)
            elif budget_us is not None:
                self._fail_probe(origin, Cause.over_budget, own_us, budget_us, "us", probe.over, hook=hook)
        elif limits.budget_us is not None:
            rise = self._slopes.add(origin.request_id, own_us, limits.budget_us)
            if rise is not None:
                self._fail_probe(origin, Cause.slope, rise.to_us, limits.budget_us, "us", rise.steps, hook=hook)

    def _trip(
        self,
        origin: Origin,
        cause: Cause,
        observed: float,
        limit: float,
        count: int = 1,
        window_s: float = 0.0,
        *,
        unit: str = "us",
        hook: str | None = None,
        limit_ms: float | None = None,
    ) -> None:
        trip = Trip(
            cause,
            observed,
            limit,
            unit,
            self._wall(),
            count,
            window_s,
            hook,
            origin.tenant,
            origin.pool,
            origin.replica,
            origin.request_id,
            origin.budget_us,
            origin.hard_limit_us,
            limit_ms,
        )
        self._evidence.forget(origin.signature)
        self._slopes.forget(origin.request_id)
        breaker = self._signatures.find_or_new(origin.signature)
        if self._happen(self._signatures, breaker, Happening(Event.trip, trip.at, trip)):
            self._escalate(trip, origin.signature)

    def _escalate(self, trip: Trip, signature: str) -> None:
        tenant = trip.tenant
        if not self._tenant_trips.add(tenant, signature, trip.at) or tenant in self._barred_tenants:
            return
        policy = self.policy.escalation
        many = policy.signatures
        said = replace(trip, cause=Cause.tenant, observed=many, limit=many, unit="signatures", count=many)
        said = replace(said, window_s=policy.window_s, hook=None, budget_us=None, hard_limit_us=None)
        breaker = self._tenants.find_or_new(tenant)
        self._happen(self._tenants, breaker, Happening(Event.trip, trip.at, said))
        self._tenant_trips.forget(tenant)

    # --- inside: probes

    def _probe_runs(self, signature: str) -> bool:
        return any(probe.signature == signature for probe in self._probes.values())

    def _probe_of(self, origin: Origin) -> Probe | None:
        return self._probes.get(origin.request_id) if self._probes else None

    def _fail_probe(
        self,
        origin: Origin,
        cause: Cause,
        observed: float,
        limit: float,
        unit: str,
        count: int = 1,
        *,
        hook: str | None = None,
        limit_ms: float | None = None,
    ) -> None:
        probe = self._probes.pop(origin.request_id)
        self._slopes.forget(origin.request_id)
        breaker = self._barred.get(probe.signature)
        if breaker is None or not _is_of(probe, breaker.record):
            return
        limits, last = probe.limits, probe.trip
        trip = Trip(
            cause,
            observed,
            limit,
            unit,
            self._wall(),
            count,
            0.0,
            hook,
            origin.tenant,
            # The pool whose limits it was held to: what the client is told must be where it wants to go.
            last.pool if last is not None else "",
            origin.replica,
            origin.request_id,
            limits.budget_us,
            limits.hard_limit_us,
            limits.compile_ms if limits.compile_ms is not None else limit_ms,
        )
        self._happen(self._signatures, breaker, Happening(Event.probe_bad, trip.at, trip))

    def _judge(self, probe: Probe) -> None:
        breaker = self._barred.get(probe.signature)
        if breaker is None or not _is_of(probe, breaker.record):
            return
        event = Event.probe_unclear
        if probe.judgement() is Judgement.good:
            enough = breaker.record.good_probes + 1 >= self.policy.probing.close_after
            event = Event.recovered if enough else Event.probe_good
        self._happen(self._signatures, breaker, Happening(event, self._wall()))

    # --- inside: transitions

    def _by_hand(
        self, kind: Kind, key: str, event: Event, author: str, reason: str, wait_s: float | None = None
    ) -> BreakerRecord:
        if not key or not author or author == BREAKER:
            raise ValueError(f"{event.value} needs a {kind.value} and an author other than {BREAKER!r}")
        registry = self._registry(kind)
        breaker = registry.find_or_new(key)
        if event is Event.release:
            self._evidence.forget(key)
            self._tenant_trips.forget(key)
        self._happen(registry, breaker, Happening(event, self._wall(), None, author, reason, wait_s))
        return breaker.record

    def _happen(self, registry: Registry, breaker: Breaker, happening: Happening) -> bool:
        """Take the table's row, if there is one; True when there was."""
        before = breaker.record
        row = row_of(before, happening.event)
        if row is None:
            return False
        record = after(before, row, happening, self.policy)
        if row.publish is Publish.force:
            # Ours will lie on top of whatever the store holds by now.
            breaker.unconfirmed, breaker.deferred = record, None
        self._place(registry, breaker, record)
        self._tell(before, record, happening.event, row.publish, breaker.version)
        return True

    def _adopt(self, registry: Registry, breaker: Breaker, version: int, record: BreakerRecord) -> bool:
        before = breaker.record
        breaker.version = version
        if record == before:
            return False
        self._place(registry, breaker, record)
        trip = record.trip
        if record.kind is Kind.signature and record.state is not State.closed:
            self._evidence.forget(record.key)
            if trip is not None:
                # Counted, not acted upon: the gateway that saw the last of them tells of the tenant.
                self._tenant_trips.add(trip.tenant, record.key, trip.at)
        self._tell(before, record, None, Publish.none, version)
        return True

    def _place(self, registry: Registry, breaker: Breaker, record: BreakerRecord) -> None:
        gone = registry.place(breaker, record)
        now_s, now = self._clock(), self._wall()
        due_s = float("inf")
        if record.state is State.open and record.until is not None:
            # Another gateway's wall clock may be off: never wait for longer than the wait was.
            due_s = now_s + min(max(record.until - now, 0.0), max(record.until - record.since, 0.0))
        elif record.state is State.half_open and record.next_probe is not None:
            longest_s = self.policy.probing.max_s
            breaker.probe_due_s = now_s + min(max(record.next_probe - now, 0.0), longest_s)
            due_s = now_s + self.policy.probing.unasked_s
        if breaker.deferred is not None:
            due_s = min(due_s, breaker.deferred[2])
        registry.plan(breaker, due_s)
        if gone is not None:
            log.warning("breaker_let_go", kind=gone.record.kind.value, key=gone.record.key, bound=len(registry.barred))

    def _come_due(self, registry: Registry, breaker: Breaker, now_s: float) -> None:
        deferred = breaker.deferred
        if deferred is not None and deferred[2] <= now_s:
            # Our own word never came back: it was overtaken before we could hear it.
            breaker.unconfirmed = breaker.deferred = None
            self._adopt(registry, breaker, *deferred[:2])
            return
        record = breaker.record
        if record.state is State.open and record.until is not None:
            # At the moment that the record names, not now: all gateways arrive at the same record.
            self._happen(registry, breaker, Happening(Event.wait_over, record.until))
        elif record.state is State.half_open:
            unasked_s = now_s - max(breaker.asked_s, breaker.probe_due_s)
            if unasked_s >= self.policy.probing.unasked_s:
                self._happen(registry, breaker, Happening(Event.unasked, self._wall()))
            else:
                registry.plan(breaker, now_s + self.policy.probing.unasked_s - unasked_s)

    def _tell(
        self, before: BreakerRecord, record: BreakerRecord, event: Event | None, publish: Publish, version: int
    ) -> None:
        why = record.reason if record.author != BREAKER else said_of(record.trip) if record.trip is not None else ""
        name = event.value if event is not None else "told"
        entry = AuditEntry(
            self._wall(), record.author, name, record.kind, record.key, before.state, record.state, why, event is None
        )
        self.audit.add(entry)
        if before.state is not record.state:
            log.info(
                "breaker",
                kind=record.kind.value,
                key=record.key,
                before=before.state.value,
                after=record.state.value,
                event_name=name,
                author=record.author,
                why=why,
            )
        self._notify(Transition(record, before.state, event, publish, version))

    def _registry(self, kind: Kind) -> Registry:
        return self._signatures if kind is Kind.signature else self._tenants


def _is_of(probe: Probe, record: BreakerRecord) -> bool:
    """Whether a probe is still the one that the record waits for."""
    return record.state is State.half_open and record.probes == probe.number


def _dearest(observation: StepObservation) -> str | None:
    kinds = observation.kinds
    return max(kinds, key=kinds.__getitem__) if kinds else None
