"""A running admin port over the real parts of a gateway, for the tests of what it shows and does."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import httpx
from aiohttp import web

from gateway.control.admin import create_admin_app
from gateway.control.assembly import build_store, build_target, build_tenants, route_over
from gateway.control.classifier import build_classifier
from gateway.control.config import Config, parse_config
from gateway.control.context import AdminContext
from gateway.control.tally import Tally
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.fleet import Fleet
from gateway.hookcost.observation import Origin, StepObservation
from gateway.oversight import Oversight
from gateway.reloading import Reloading
from gateway.upstreams import Upstreams
from gateway.wire.counts import WireCounts
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


async def _nobody_takes_over(config: Config) -> None:
    raise AssertionError("there is no file that could be loaded again")


@asynccontextmanager
async def running_admin(text: str = CONFIG) -> AsyncIterator[Admin]:
    """The admin port of a gateway with this configuration, nothing of which is started."""
    config = parse_config(text)
    clock = Clock()
    running = RunningRequests()
    policy, store = config.breaker.policy(config.quarantine_pool), build_store(config, clock, {})
    oversight = Oversight(policy, store, running, clock, clock)
    senses = Senses(running, oversight, clock=clock)
    fleet = Fleet(config, oversight, senses, Upstreams().connect, clock=clock)
    context = AdminContext(
        config=config,
        router=route_over(config, fleet.pools),
        health=fleet.health,
        classifier=build_classifier(config),
        tally=Tally(),
        is_draining=lambda: admin.draining,
        trust=oversight.trust,
        book=oversight.book,
        store=oversight.store,
        tenants=build_tenants(config, clock, clock),
        running=running,
        senses=senses,
        queues=fleet.queues,
        breakers=fleet.breakers,
        upstreams=fleet.upstreams,
        steps=oversight.steps,
        pool_steps=oversight.pool_steps,
        transitions=oversight.transitions,
        clock=clock,
        wall=clock,
        reloader=Reloading(config, None, _nobody_takes_over),
        members=fleet,
        discovery=dict,
        wire=WireCounts(),
        open_connections=lambda: 0,
    )
    runner = web.AppRunner(create_admin_app(context), access_log=None)
    async with httpx.AsyncClient() as client:
        admin = Admin(client, context, oversight, clock)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client.base_url = httpx.URL(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await context.senses.start(
            build_target(config, name, replica) for name, pool in config.pools.items() for replica in pool.replicas
        )
        try:
            yield admin
        finally:
            await context.senses.close()
            await context.health.close()
            await runner.cleanup()
