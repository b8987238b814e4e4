"""What is observed, judged and shared: joins the feeds to the cost book and the breakers, and these to the store.

Owns the once-a-second work and the way of a transition: to the other gateways, to the log, and to whoever ends what
runs. Decides nothing itself. One event loop; nothing here is waited for by a request.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

import structlog

from gateway.breaker.ledger import Transition
from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.record import BreakerRecord, Kind
from gateway.breaker.replica import ReplicaBreaker
from gateway.breaker.replicastates import ReplicaState, ReplicaTransition
from gateway.breaker.transitions import Publish
from gateway.breaker.trust import Trust
from gateway.breaker.verdict import ProbeOffer
from gateway.control.inturns import giving_way
from gateway.control.poolsteps import PoolSteps
from gateway.control.steptotals import StepTotals
from gateway.feed.running import RunningRequests
from gateway.feed.scrape import EngineMetrics
from gateway.feed.senses import ReplicaGone
from gateway.feed.sources import ReplicaProgress
from gateway.hookcost.costbook import CostBook
from gateway.hookcost.observation import (
    CompileObservation,
    OffenceObservation,
    Origin,
    RollupObservation,
    StepObservation,
)
from gateway.routing.replica import Replica
from gateway.state.store import Store
from gateway.tenants.register import KEY_KIND, SPENT_KIND, Register

log = structlog.get_logger("steplane.breaker")

_TICK_S = 1.0
_SHARE_EVERY = 2
"""Ticks between two exchanges of the cost book with other gateways."""
_AGE_EVERY = 60
_COSTS = "cost"
SPENT_TTL_S = 120.0
"""How long gateways remember what another has used of a tenant's limits."""


class Overseen(Protocol):
    """One replica, as far as its breaker needs it."""

    @property
    def replica(self) -> Replica: ...
    @property
    def breaker(self) -> ReplicaBreaker: ...
    @property
    def last_read_at(self) -> float:
        """Clock reading when a byte of a response last came."""


class Oversight:
    """See the module; a `SensesObserver`.

    evict: what ends the running requests of a signature that has tripped; set by whoever runs them.
    ended: is told the name of each replica whose engine has ended.
    spent: is told what a request's hooks took, in microseconds; None where nobody is charged for it.
    named: is told of each step, grammar and verdict that a replica names a request for; None where nobody wants that.
    """

    def __init__(
        self,
        policy: BreakerPolicy,
        store: Store,
        running: RunningRequests,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is monotonic, `wall` the time of day, both in seconds."""
        self.book = CostBook(clock)
        self.trust = Trust(policy, clock, wall, self._happened)
        self.store = store
        self.evict: Callable[[str], None] = _nobody
        self.ended: Callable[[str], None] = _nobody
        self.spent: Callable[[Origin, float], None] | None = None
        self.named: Callable[[StepObservation | CompileObservation | OffenceObservation], None] | None = None
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        """By kind of key, state before and after: for metrics."""
        self.pool_steps = PoolSteps()
        """For metrics."""
        self.steps: dict[str, StepTotals] = {}
        """By replica: for metrics."""
        self._running = running
        self._clock = clock
        self._tenants: Register | None = None
        self._replicas: dict[str, Overseen] = {}
        self._advanced_s: dict[str, float] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._leasing: set[asyncio.Task[None]] = set()

    def share_tenants(self, tenants: Register) -> None:
        """Tell other gateways what is used of tenants' limits; hear of theirs, and of shared keys. Before `start`."""

        def stored(key: str, _version: int, value: bytes) -> None:
            tenants.key_stored(key, value.decode())

        self._tenants = tenants
        self.store.watch(KEY_KIND, stored)
        self.store.watch_added(SPENT_KIND, tenants.merge)

    async def start(self) -> None:
        """Hear what other gateways know, and begin the once-a-second work."""
        for kind in Kind:
            self.store.watch(kind.value, self._told)
        self.store.watch_added(_COSTS, self.book.merge)
        await self.store.start()  # waits for what is watched
        self._ticking = asyncio.create_task(self._tick(), name="oversight")

    def add(self, overseen: Overseen) -> None:
        """Watch one more replica, in the place of one of its name."""
        self._replicas[overseen.replica.name] = overseen
        self._advanced_s.pop(overseen.replica.name, None)

    def remove(self, replica: Replica) -> None:
        """Watch a replica no more; harmless where another of its name has followed."""
        overseen = self._replicas.get(replica.name)
        if overseen is not None and overseen.replica is replica:
            del self._replicas[replica.name]
            self._advanced_s.pop(replica.name, None)
            self.steps.pop(replica.name, None)

    async def close(self) -> None:
        """Stop; what was published is still sent."""
        tasks = [*self._leasing, *([self._ticking] if self._ticking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    def offer(
        self,
        probe: ProbeOffer,
        request_id: str,
        runs: Callable[[], bool],
        decided: Callable[[bool], None] | None = None,
    ) -> None:
        """Make a request the probe of its signature if no other gateway probes it; returns at once.

        runs:    whether the request has not ended yet, which would leave nothing to be judged.
        decided: is told whether it is the probe.
        """
        task = asyncio.get_running_loop().create_task(self._lease(probe, request_id, runs, decided))
        self._leasing.add(task)
        task.add_done_callback(self._leasing.discard)

    def replica_changed(self, replica: Replica, transition: ReplicaTransition) -> None:
        """A replica's breaker went from one state to another, or gives it further trials."""
        if transition.before is not transition.after:
            log.warning(
                "replica_breaker",
                pool=transition.pool,
                replica=transition.replica,
                before=transition.before.value,
                after=transition.after.value,
                reason=transition.reason,
            )
            self.transitions["replica", transition.before.value, transition.after.value] += 1
        match transition.after:
            case ReplicaState.open:
                replica.eject()
            case ReplicaState.half_open:
                replica.try_out(transition.trials)
            case ReplicaState.closed:
                replica.readmit()

    # --- SensesObserver

    def step(self, observation: StepObservation) -> None:
        if self.named is not None:
            self.named(observation)
        self.book.observe_step(observation)
        self.trust.observe_step(observation)

    def rollup(self, observation: RollupObservation) -> None:
        self.pool_steps.rollup(observation, self.book)
        self.book.observe_rollup(observation)
        if self.spent is not None:
            self.spent(observation.origin, observation.sum_us)
        self.trust.observe_rollup(observation)

    def compiled(self, observation: CompileObservation) -> None:
        if self.named is not None:
            self.named(observation)
        self.book.observe_compile(observation)
        if self.spent is not None:
            self.spent(observation.origin, observation.compile_ms * 1000.0)
        self.trust.observe_compile(observation)

    def offence(self, observation: OffenceObservation) -> None:
        if self.named is not None:
            self.named(observation)
        self.trust.observe_offence(observation)

    def progress(self, progress: ReplicaProgress) -> None:
        self._advanced_s[progress.replica] = progress.advanced_s
        self.steps.setdefault(progress.replica, StepTotals()).add(progress)
        overseen = self._replicas.get(progress.replica)
        if overseen is not None:
            # Where no step has ended in that time, one may take longer.
            overseen.replica.hooks_us = progress.hook_us if progress.steps else progress.step_runs_s * 1e6
        if overseen is not None and progress.steps:
            self.pool_steps.progress(overseen.replica.pool, progress)
            # Without its hooks: what requests cost is not the replica's doing.
            overseen.breaker.observe_step(progress.replica, max(0.0, progress.step_us - progress.hook_us))

    def metrics(self, metrics: EngineMetrics) -> None:
        """Sums that are nobody's: shown, not judged. Its step feed is silent."""
        overseen = self._replicas.get(metrics.replica)
        if overseen is not None:
            overseen.replica.hooks_us = 0.0

    def gone(self, gone: ReplicaGone) -> None:
        log.warning("engine_gone", replica=gone.replica, running=len(gone.running))
        here = [*gone.running, *gone.ended]
        elsewhere = [
            attempt for name in self._replicas if name != gone.replica for attempt in self._running.on_replica(name)
        ]
        self.trust.replica_died(gone.replica, here, elsewhere)
        self.ended(gone.replica)

    # --- inside

    def _happened(self, transition: Transition) -> None:
        """Of the breaker: a signature or tenant changed its state."""
        record = transition.record
        self.transitions[record.kind.value, transition.before.value, record.state.value] += 1
        if transition.publish is Publish.force:
            self.store.force(record.kind.value, record.key, record.to_bytes(), ttl_s=transition.ttl_s)
        elif transition.publish is Publish.advance:
            version, ttl_s = transition.expected_version, transition.ttl_s
            self.store.advance(record.kind.value, record.key, version, record.to_bytes(), ttl_s=ttl_s)
        if transition.tripped and record.kind is Kind.signature:
            self.evict(record.key)

    def _told(self, key: str, version: int, value: bytes) -> None:
        """Of the store: a record of any gateway."""
        try:
            record = BreakerRecord.from_bytes(value)
        except ValueError as error:
            log.error("record_unreadable", key=key, error=str(error))
            return
        self.trust.apply(version, record)

    async def _lease(
        self, probe: ProbeOffer, request_id: str, runs: Callable[[], bool], decided: Callable[[bool], None] | None
    ) -> None:
        granted = await self.store.lease(probe.lease_key, probe.ttl_s)
        if granted and not runs():
            self.store.release(probe.lease_key)
            return
        granted = granted and self.trust.probe_leased(probe.signature, request_id)
        if decided is not None:
            decided(granted)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_TICK_S)
            ticks += 1
            try:
                await self._work(ticks)
            except Exception:
                log.exception("oversight_failed")

    async def _work(self, ticks: int) -> None:
        self.trust.tick()
        breakers: dict[ReplicaBreaker, None] = {}
        async for name, overseen in giving_way(list(self._replicas.items())):
            if self._replicas.get(name) is not overseen:
                continue
            breakers[overseen.breaker] = None
            progress_s = max(overseen.last_read_at, self._advanced_s.get(name, overseen.last_read_at))
            overseen.breaker.observe_progress(name, overseen.replica.in_flight, progress_s)
        async for breaker in giving_way(breakers):
            breaker.tick()
        if ticks % _SHARE_EVERY == 0:
            async for signature, amounts in giving_way(self.book.export().items()):
                self.store.add(_COSTS, signature, amounts)
        if self._tenants is not None:
            for key, used in self._tenants.export().items():
                self.store.add(SPENT_KIND, key, used)
        if ticks % _AGE_EVERY == 0:
            self.book.age()


def _nobody(signature: str) -> None:
    """Nothing runs yet."""
