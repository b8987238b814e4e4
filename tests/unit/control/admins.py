"""A running admin port over the real parts of a gateway, for the tests of what it shows and does."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import httpx
from aiohttp import web

from gateway.breaker.replica import ReplicaBreaker
from gateway.control.admin import create_admin_app
from gateway.control.assembly import build_router, build_store, build_targets, build_tenants
from gateway.control.classifier import build_classifier
from gateway.control.config import parse_config
from gateway.control.context import AdminContext
from gateway.control.tally import Tally
from gateway.feed.health import HealthMonitor, HealthPolicy
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.hookcost.observation import Origin, StepObservation
from gateway.oversight import Oversight
from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.wire.limits import Timeouts
from gateway.wire.upstream import Upstream
from tests.unit.feed.attempts import Attempt

BOMB = "s1-00000000000000b0"
OTHER = "s1-0000000000000001"

CONFIG = """
default_pool: interactive
limits: {max_body_bytes: 1000}
pools:
  interactive:
    replicas: [{url: "http://127.0.0.1:1", name: i1}]
    step_budget_us: 1000
    when_unavailable: {spill: grammar}
  grammar: {replicas: [{url: "http://127.0.0.1:2", name: g1}], breaker: {on_open: refuse}}
  quarantine: {replicas: [{url: "http://127.0.0.1:3", name: q1}]}
rules:
  - {name: structured, when: {grammar: any}, pool: grammar}
"""


@dataclass
class Clock:
    """Stands still unless it is put forward."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Admin:
    """A running admin port, and what it shows. `now_s` is what its clocks say."""

    client: httpx.AsyncClient
    context: AdminContext
    oversight: Oversight
    clock: Clock
    draining: bool = False
    _ids: Iterator[int] = field(default_factory=count)

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self.clock.now_s = now_s

    async def probed(self) -> None:
        """Let every replica be probed once; all are refused, since nothing listens there."""
        await self.context.health.start()
        await self.context.health.wait_all_probed()

    def admit(self, *names: str) -> None:
        for pool in self.context.router.pools.values():
            for replica in pool.replicas:
                replica.set_healthy(replica.name in names)

    def origin(self, signature: str = BOMB, tenant: str = "acme") -> Origin:
        return Origin(f"r{next(self._ids)}", signature, tenant, "interactive", "i1", 1000.0, 20_000.0)

    def observe(self, *steps_us: float, signature: str = BOMB, tenant: str = "acme") -> None:
        """One request's steps, as its replica's feed would tell them."""
        origin = self.origin(signature, tenant)
        for own_us in steps_us:
            self.oversight.step(StepObservation(origin, self.now_s, own_us, {"grammar_fill": own_us}))

    def trip(self, signature: str = BOMB, tenant: str = "acme") -> None:
        self.observe(2500.0, 2400.0, 2600.0, signature=signature, tenant=tenant)

    def run(self, signature: str = BOMB, tenant: str = "acme") -> Origin:
        """A request that began three seconds ago and runs."""
        attempt = Attempt(self.origin(signature, tenant), self.now_s - 3.0)
        self.context.running.add(attempt.origin.request_id, attempt)
        return attempt.origin


@asynccontextmanager
async def running_admin(text: str = CONFIG) -> AsyncIterator[Admin]:
    """The admin port of a gateway with this configuration, nothing of which is started."""
    config = parse_config(text)
    router = build_router(config)
    loop = asyncio.get_running_loop()
    clock = Clock()
    running = RunningRequests()
    policy, store = config.breaker.policy(config.quarantine_pool), build_store(config, clock, {})
    oversight = Oversight(policy, store, running, clock, clock)
    replicas = [replica for pool in router.pools.values() for replica in pool.replicas]
    queues, breakers = {}, {}
    for name, pool in router.pools.items():
        queues[name] = AdmissionQueue(pool, AdmissionPolicy(), clock=clock, call_at=loop.call_at)
        names = [replica.name for replica in pool.replicas]
        ejection = config.pools[name].ejection.policy()
        breakers[name] = ReplicaBreaker(name, names, ejection, clock=clock, notify=lambda _: None)
    context = AdminContext(
        config=config,
        router=router,
        health=HealthMonitor([(replica, HealthPolicy(interval_s=60)) for replica in replicas], clock=loop.time),
        classifier=build_classifier(config),
        tally=Tally(),
        is_draining=lambda: admin.draining,
        trust=oversight.trust,
        book=oversight.book,
        store=oversight.store,
        tenants=build_tenants(config, clock, clock),
        running=running,
        senses=Senses(running, oversight, clock=clock),
        queues=queues,
        breakers=breakers,
        upstreams={replica.name: Upstream(replica.host, replica.port, Timeouts()) for replica in replicas},
        steps=oversight.steps,
        transitions=oversight.transitions,
        clock=clock,
        wall=clock,
    )
    runner = web.AppRunner(create_admin_app(context), access_log=None)
    async with httpx.AsyncClient() as client:
        admin = Admin(client, context, oversight, clock)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client.base_url = httpx.URL(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await context.senses.start(build_targets(config))
        try:
            yield admin
        finally:
            await context.senses.close()
            await context.health.close()
            await runner.cleanup()
