"""Who may go where the rules say, and who goes to quarantine: the way in to the signature and tenants' breakers.

Pure of I/O: what is observed comes in, transitions go out by `notify`; clocks are passed in. One event loop, no locks.
Turns evidence into events; what these do is in `transitions.py`, and how gateways agree in `ledger.py`. Owns neither
the limits (pools have them, observations bring them) nor what is done with a verdict.

Hot: `verdict` of a request that is not quarantined is two look-ups.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from gateway.breaker.audit import AuditLog
from gateway.breaker.crash import CrashWatch, Received
from gateway.breaker.evidence import EvidenceBook
from gateway.breaker.ledger import Clock, Ledger, Transition
from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.probe import Judgement, Probe, Probes
from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.breaker.signatures import Breaker
from gateway.breaker.slope import SlopeWatch
from gateway.breaker.tenant import TenantTrips
from gateway.breaker.transitions import Event, Happening, Publish
from gateway.breaker.trip import Cause, Trip, trip_by
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

_LEASE_MARGIN_S = 1.0
"""A lease outlives the longest probe by this: the second in which `tick` judges it."""


class Trust:
    """See the module. `clock` is monotonic, `wall` the time of day, both in seconds."""

    def __init__(self, policy: BreakerPolicy, clock: Clock, wall: Clock, notify: Callable[[Transition], None]) -> None:
        self.policy = policy
        self._clock = clock
        self._wall = wall
        self._notify = notify
        self._ledger = Ledger(policy, clock, wall, self._happened)
        self._barred = self._ledger.signatures.barred
        self._barred_tenants = self._ledger.tenants.barred
        self._evidence = EvidenceBook(policy.over_budget, policy.aborts, policy.bounds.evidence)
        self._slopes = SlopeWatch(policy.slope)
        self._crashes = CrashWatch(policy.crash, policy.bounds.evidence)
        self._tenant_trips = TenantTrips(policy.escalation)
        self._probes = Probes(policy)
        self._compile_limits: dict[str, float] = {}
        """By pool, as last heard: for the probes of what tripped by something else."""

    def reconfigure(self, policy: BreakerPolicy) -> None:
        """Go by another policy from now on. What is quarantined stays so, until the times that it was given."""
        self.policy = policy
        self._ledger.reconfigure(policy)
        self._evidence.reconfigure(policy.over_budget, policy.aborts)
        self._crashes.reconfigure(policy.crash)
        self._tenant_trips.reconfigure(policy.escalation)
        self._probes.reconfigure(policy)

    # --- before a request is routed

    def verdict(self, signature: str, tenant: str, predicted: HookCost) -> Verdict | None:
        """None: it goes where the rules say. Else it goes to quarantine or is refused, by the pool's policy.

        A tenant's breaker lets pass what asks for no hook work: that can't hurt anybody, and it is the costly requests
        that the tenant has to answer for.
        """
        if signature in self._barred or tenant in self._barred_tenants:
            return self._verdict(signature, tenant, predicted)
        return None

    @property
    def barred_signatures(self) -> Container[str]:
        """Those for which `verdict` may say more than None; always the same container."""
        return self._barred

    @property
    def barred_tenants(self) -> Container[str]:
        """Those for which `verdict` may say more than None; always the same container."""
        return self._barred_tenants

    def probe_leased(self, signature: str, request_id: str) -> bool:
        """The lease that a verdict offered was granted to this request: it is a probe from now on.

        False when it comes too late: the signature is not half-open any more, or another probe of it runs.
        """
        breaker = self._barred.get(signature)
        if breaker is None or breaker.record.state is not State.half_open:
            return False
        return self._probes.begin(breaker.record, request_id, self._clock())

    # --- what was observed

    def observe_step(self, observation: StepObservation) -> None:
        """One request's part of one step."""
        origin = observation.origin
        if origin.signature in self._barred:
            self._observe_probe_step(observation)
            return
        own_us, budget_us, hard_us = observation.own_us, origin.budget_us, origin.hard_limit_us
        if not self._may_trip(origin):
            return
        if hard_us is not None and own_us > hard_us:
            self._trip(origin, self._trip_of(origin, Cause.hard_limit, own_us, hard_us, _dearest(observation)))
            return
        if budget_us is None:
            return
        if own_us > budget_us:
            count = self._evidence.count_step(observation)
            if count is not None:
                policy = self.policy.over_budget
                trip = self._trip_of(origin, Cause.over_budget, count.worst, budget_us, _dearest(observation))
                self._trip(origin, replace(trip, count=policy.steps, window_s=policy.window_s))
                return
        rise = self._slopes.add(origin.request_id, own_us, budget_us)
        if rise is not None:
            trip = self._trip_of(origin, Cause.slope, rise.to_us, budget_us, _dearest(observation))
            self._trip(origin, replace(trip, count=rise.steps))

    def observe_rollup(self, observation: RollupObservation) -> None:
        """Several steps of a request added up: against how many a few over budget count, and that a probe was seen."""
        self._evidence.note_steps(observation)
        probe = self._probes.find(observation.origin.request_id)
        if probe is not None:
            probe.roll_up(observation.steps)

    def observe_compile(self, observation: CompileObservation) -> None:
        """The engine compiled a request's grammar, or gave up."""
        origin, limit_ms, compile_ms = observation.origin, observation.limit_ms, observation.compile_ms
        if limit_ms is not None:
            self._compile_limits[origin.pool] = limit_ms
        if origin.signature in self._barred:
            probe = self._probes.find(origin.request_id)
            if probe is not None:
                probe.compiled = True
                limit_ms = probe.limits.compile_ms if probe.limits.compile_ms is not None else limit_ms
                if limit_ms is not None and compile_ms > limit_ms:
                    trip = trip_by(origin, self._wall(), Cause.compile, compile_ms, limit_ms, unit="ms")
                    self._fail_probe(origin, probe, trip)
        elif limit_ms is not None and compile_ms > limit_ms and self._may_trip(origin):
            self._trip(origin, trip_by(origin, self._wall(), Cause.compile, compile_ms, limit_ms, unit="ms"))

    def observe_offence(self, observation: OffenceObservation) -> None:
        """The engine's own watchdog named a request."""
        origin, hook = observation.origin, observation.kind
        if origin.signature in self._barred:
            probe = self._probes.find(origin.request_id)
            if probe is not None and observation.limit is not Limit.asked:
                trip = trip_by(origin, self._wall(), Cause.aborts, 1, 1, unit="aborts", hook=hook)
                self._fail_probe(origin, probe, trip)
            return
        if not self._may_trip(origin):
            return
        hard_us = origin.hard_limit_us
        if observation.limit is Limit.hard and hard_us is not None and observation.own_us > hard_us:
            self._trip(origin, self._trip_of(origin, Cause.hard_limit, observation.own_us, hard_us, hook))
        elif self._evidence.count_offence(observation) is not None:
            many, window_s = self.policy.aborts.count, self.policy.aborts.window_s
            trip = trip_by(origin, self._wall(), Cause.aborts, many, many, unit="aborts", hook=hook)
            self._trip(origin, replace(trip, count=many, window_s=window_s))

    def finished(self, request_id: str, signature: str, *, answered: bool, watched: bool = False) -> None:
        """A request has ended: for all that are `costly`, and for probes.

        answered: completely, and not with an error.
        watched:  its replica's step feed was read from its beginning to its end.
        """
        now_s = self._clock()
        self._slopes.forget(request_id)
        probe = self._probes.find(request_id)
        if probe is not None:
            probe.ended_s, probe.answered, probe.watched = now_s, answered, watched
        if answered:
            self._crashes.ended_well(signature, now_s)

    def replica_died(self, replica: str, running: Iterable[Received], elsewhere: Iterable[Received] = ()) -> None:
        """A replica's engine died, not by our doing, with these on it; `elsewhere`: on the others meanwhile."""
        now_s, policy = self._clock(), self.policy.crash
        here = list(running)
        for request in here:
            origin = request.origin
            probe = self._probes.find(origin.request_id)
            # A probe that had run for longer just breaks off.
            if probe is not None and now_s - request.received_s <= policy.within_s:
                self._fail_probe(
                    origin, probe, trip_by(origin, self._wall(), Cause.crash, 1, policy.replicas, unit="replicas")
                )
        suspects = [request for request in here if self._may_trip(request.origin)]
        for guilt in self._crashes.died(replica, now_s, suspects, elsewhere):
            number = len(guilt.replicas)
            trip = trip_by(guilt.origin, self._wall(), Cause.crash, number, policy.replicas, unit="replicas")
            self._trip(guilt.origin, replace(trip, count=number, window_s=policy.window_s))

    def tick(self) -> None:
        """What happens by the passing of time; call it about once a second."""
        for request_id, probe in self._probes.over(self._clock()):
            self._probes.end(request_id)
            self._slopes.forget(request_id)
            self._judge(probe)
        self._ledger.tick()

    # --- by hand

    def add(self, kind: Kind, key: str, author: str, reason: str, wait_s: float | None = None) -> BreakerRecord:
        """Quarantine a signature or tenant for `wait_s` seconds (None: as after a trip); a signature is probed then.

        A pinned one stays pinned. Raises ValueError without an author, or for a wait that is not positive.
        """
        return self._ledger.by_hand(kind, key, Event.add, author, reason, wait_s)

    def pin(self, kind: Kind, key: str, author: str, reason: str) -> BreakerRecord:
        """Quarantine a signature or tenant until somebody releases it.

        Raises ValueError without an author, or when as many are pinned as the bound allows.
        """
        return self._ledger.by_hand(kind, key, Event.pin, author, reason)

    def release(self, kind: Kind, key: str, author: str, reason: str) -> BreakerRecord:
        """Let a signature or tenant go at once and forget its trips. Raises ValueError without an author."""
        return self._ledger.by_hand(kind, key, Event.release, author, reason)

    # --- between gateways

    def apply(self, version: int, record: BreakerRecord) -> bool:
        """What the store has under a key, our own included; any order and repetition does. True: something changed.

        The version is the store's; a `notify` that publishes may call this before it returns.
        """
        return self._ledger.apply(version, record)

    # --- to look at

    @property
    def audit(self) -> AuditLog:
        """Who did what, and why."""
        return self._ledger.audit

    def standing(self, kind: Kind, key: str) -> Verdict | None:
        """What `verdict` would say of a signature or tenant now, for people: nobody has asked for it by that."""
        breaker = self._ledger.of(kind).barred.get(key)
        return None if breaker is None else Verdict(breaker.record, self._retry_after_s(breaker, self._clock()))

    def record(self, kind: Kind, key: str) -> BreakerRecord | None:
        """What is known of a signature or tenant; None: nothing is, it is closed."""
        breaker = self._ledger.of(kind).find(key)
        return None if breaker is None else breaker.record

    def snapshot(self) -> list[BreakerRecord]:
        """All that bar somebody, newest first."""
        return sorted(self._ledger, key=lambda record: record.since, reverse=True)

    def count(self) -> Mapping[tuple[Kind, State], int]:
        """How many bar, by what they are about and their state; what does not occur is 0."""
        return Counter((record.kind, record.state) for record in self._ledger)

    def status(self) -> dict[str, int]:
        """How much is kept, for metrics and the dashboard."""
        return {
            "signatures": len(self._barred),
            "tenants": len(self._barred_tenants),
            "closed": self._ledger.signatures.closed + self._ledger.tenants.closed,
            "evidence": len(self._evidence),
            "suspects": len(self._crashes),
            "followed": len(self._slopes),
            "probes": len(self._probes),
        }

    # --- inside: verdicts

    def _verdict(self, signature: str, tenant: str, predicted: HookCost) -> Verdict | None:
        now_s = self._clock()
        found: Verdict | None = None
        breaker = self._barred.get(signature)
        if breaker is not None:
            # Before the tenant's, because it says more and has probes.
            found = self._of_barred(breaker, now_s)
        breaker = self._barred_tenants.get(tenant)
        if found is None and breaker is not None and predicted.costly:
            found = self._of_barred(breaker, now_s)
        return found

    def _of_barred(self, breaker: Breaker, now_s: float) -> Verdict | None:
        if breaker.until_s <= now_s:
            self._ledger.bring_up_to_date(breaker, now_s)
        record = breaker.record
        if record.state is State.closed:
            return None
        self._ledger.of(record.kind).asked(breaker, now_s)
        offer = self._offer(breaker, now_s) if record.state is State.half_open else None
        return Verdict(record, self._retry_after_s(breaker, now_s), offer)

    def _retry_after_s(self, breaker: Breaker, now_s: float) -> int:
        state = breaker.record.state
        if state is State.open:
            return seconds(breaker.until_s - now_s)
        return seconds(breaker.probe_due_s - now_s if state is State.half_open else self.policy.pinned_retry_s)

    def _offer(self, breaker: Breaker, now_s: float) -> ProbeOffer | None:
        policy, record = self.policy.probing, breaker.record
        if now_s < breaker.probe_due_s or now_s - breaker.offered_s < policy.offer_s or self._probes.runs(record.key):
            return None
        breaker.offered_s = now_s
        # All gateways name a probe alike, and whoever leases it has it to its end.
        name = f"{record.key}:{record.since:.3f}:{record.probes}"
        return ProbeOffer(record.key, name, policy.longest_s + policy.settle_s + _LEASE_MARGIN_S)

    # --- inside: evidence

    def _may_trip(self, origin: Origin) -> bool:
        return origin.costly and origin.pool != self.policy.quarantine_pool

    def _trip_of(self, origin: Origin, cause: Cause, own_us: float, limit_us: float, hook: str | None) -> Trip:
        return trip_by(origin, self._wall(), cause, own_us, limit_us, hook=hook)

    def _trip(self, origin: Origin, trip: Trip) -> None:
        self._slopes.forget(origin.request_id)
        trip = replace(trip, compile_limit_ms=self._compile_limits.get(origin.pool))
        breaker = self._ledger.signatures.find_or_new(origin.signature)
        self._ledger.happen(breaker, Happening(Event.trip, trip.at, trip))

    def _happened(self, transition: Transition) -> None:
        """Of the ledger: what a transition means to the evidence; then it goes out."""
        self._notify(transition)
        record, trip = transition.record, transition.record.trip
        if record.kind is Kind.tenant:
            self._tenant_trips.forget(record.key)
            return
        self._evidence.forget(record.key)
        if trip is None or not transition.tripped:
            return
        many = self._tenant_trips.add(trip.tenant, record.key, trip.at)
        # The gateway that saw the last of them tells of the tenant; others only count.
        if many and transition.publish is not Publish.none:
            self._escalate(trip)

    def _escalate(self, last: Trip) -> None:
        policy = self.policy.escalation
        trip = Trip(
            Cause.tenant,
            observed=policy.signatures,
            limit=policy.signatures,
            unit="signatures",
            at=last.at,
            count=policy.signatures,
            window_s=policy.window_s,
            tenant=last.tenant,
            pool=last.pool,
            replica=last.replica,
            request_id=last.request_id,
        )
        self._ledger.happen(self._ledger.tenants.find_or_new(last.tenant), Happening(Event.trip, last.at, trip))

    # --- inside: probes

    def _observe_probe_step(self, observation: StepObservation) -> None:
        origin = observation.origin
        probe = self._probes.find(origin.request_id)
        if probe is None:
            return
        own_us, limits, hook = observation.own_us, probe.limits, _dearest(observation)
        probe.step(own_us)
        budget_us, hard_us = limits.budget_us, limits.hard_limit_us
        if hard_us is not None and own_us > hard_us:
            self._fail_probe(origin, probe, self._trip_of(origin, Cause.hard_limit, own_us, hard_us, hook))
        elif budget_us is None:
            return
        elif probe.over >= self.policy.over_budget.steps:
            trip = self._trip_of(origin, Cause.over_budget, probe.worst_us, budget_us, hook)
            window_s = max(1.0, self._clock() - probe.began_s)
            self._fail_probe(origin, probe, replace(trip, count=probe.over, window_s=round(window_s, 1)))
        else:
            rise = self._slopes.add(origin.request_id, own_us, budget_us)
            if rise is not None:
                trip = self._trip_of(origin, Cause.slope, rise.to_us, budget_us, hook)
                self._fail_probe(origin, probe, replace(trip, count=rise.steps))

    def _fail_probe(self, origin: Origin, probe: Probe, trip: Trip) -> None:
        self._probes.end(origin.request_id)
        self._slopes.forget(origin.request_id)
        breaker = self._half_open(probe)
        if breaker is not None:
            self._ledger.happen(breaker, Happening(Event.probe_bad, trip.at, probe.held_to_its_pool(trip)))

    def _judge(self, probe: Probe) -> None:
        breaker = self._half_open(probe)
        if breaker is None:
            return
        event = Event.probe_unclear
        if probe.judgement() is Judgement.good:
            enough = breaker.record.good_probes + 1 >= self.policy.probing.close_after
            event = Event.recovered if enough else Event.probe_good
        self._ledger.happen(breaker, Happening(event, self._wall()))

    def _half_open(self, probe: Probe) -> Breaker | None:
        """The breaker that waits for this probe; None when it has gone on without it."""
        breaker = self._barred.get(probe.asked_by.key)
        return breaker if breaker is not None and probe.is_of(breaker.record) else None


def _dearest(observation: StepObservation) -> str | None:
    """The kind of hook that took most."""
    kinds = observation.kinds
    return max(kinds, key=kinds.__getitem__) if kinds else None
