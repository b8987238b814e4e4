"""The one place where the parts are put together: a configuration becomes a running gateway."""

import asyncio
import time

from aiohttp import web

from gateway.control.admin import create_admin_app
from gateway.control.assembly import build_store, build_tenants, route_over
from gateway.control.classifier import build_classifier
from gateway.control.config import Config
from gateway.control.context import AdminContext
from gateway.control.retryplans import build_plans
from gateway.control.tally import Tally
from gateway.feed.abort import Aborts
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.fleet import Fleet
from gateway.oversight import SPENT_TTL_S, Oversight
from gateway.proxy import Proxy
from gateway.routing.router import Router
from gateway.tenantgate import TenantGate
from gateway.tenants.register import SPENT_KIND
from gateway.upstreams import Upstreams
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.server import Server


class Gateway:
    """A gateway in front of the replicas of `config`. Lives on the event loop that starts it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.router: Router
        """Of a gateway that was started."""
        self.data_address = ("", 0)
        self.admin_address = ("", 0)
        self._server: Server | None = None
        self._fleet: Fleet | None = None
        self._aborts: Aborts | None = None
        self._oversight: Oversight | None = None
        self._admin: web.AppRunner | None = None

    async def start(self) -> None:
        """Bind both ports and begin to watch the replicas. Raises OSError, with nothing left open."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        config = self.config
        loop = asyncio.get_running_loop()
        timeouts = Timeouts(**config.timeouts.model_dump())
        running = RunningRequests()
        policy = config.breaker.policy(config.quarantine_pool)
        store = build_store(config, loop.time, {SPENT_KIND: SPENT_TTL_S})
        oversight = self._oversight = Oversight(policy, store, running, loop.time)
        upstreams = Upstreams()
        senses = Senses(running, oversight, clock=loop.time, reach=upstreams.reach)
        fleet = self._fleet = Fleet(config, oversight, senses, upstreams.connect, upstreams.reach)
        self.router = route_over(config, fleet.pools)
        tally = Tally()
        classifier = build_classifier(config)
        self._aborts = Aborts(upstreams.reach, senses.feed_of)
        tenants = build_tenants(config, loop.time, time.time)
        proxy = Proxy(
            self.router,
            fleet.links,
            fleet.terms,
            classifier,
            oversight,
            running,
            tenants,
            tally,
            self._aborts,
            fleet.health,
            build_plans(config, tally, loop.time),
            refuses_control=config.control_paths == "refuse",
        )
        oversight.evict = proxy.evict
        if tenants.restricts:
            gate = proxy.gate = TenantGate(tenants, proxy.decide, loop.time)
            oversight.spent = gate.observed
        oversight.share_tenants(tenants)
        limits = Limits(**config.limits.model_dump())
        self._server = Server(proxy, limits, timeouts, config.forwarding.build())
        self._server.upstreams = fleet.connections
        opened = [await self._server.listen(**each.arguments(config.folder)) for each in config.listen]
        self.data_address = opened[0]
        context = AdminContext(
            config=config,
            router=self.router,
            health=fleet.health,
            classifier=classifier,
            tally=tally,
            is_draining=lambda: self.draining,
            trust=oversight.trust,
            book=oversight.book,
            store=oversight.store,
            tenants=tenants,
            running=running,
            senses=senses,
            queues=fleet.queues,
            breakers=fleet.breakers,
            upstreams=fleet.upstreams,
            steps=oversight.steps,
            transitions=oversight.transitions,
            clock=loop.time,
            wall=time.time,
        )
        self._admin = web.AppRunner(create_admin_app(context), access_log=None)
        await self._admin.setup()
        site = web.TCPSite(self._admin, config.admin.listen.host, config.admin.listen.port)
        await site.start()
        self.admin_address = self._admin.addresses[0][:2]
        await oversight.start()
        await fleet.start()

    @property
    def draining(self) -> bool:
        """On its way out: running requests are finished, new ones are not accepted."""
        return self._server is not None and self._server.draining

    async def wait_all_up(self) -> None:
        """Return when every replica has been up at least once; to be called after `start`."""
        assert self._fleet is not None
        await self._fleet.health.wait_all_up()

    async def drain(self) -> None:
        """Stop accepting and wait until the running requests are done, `drain_s` at most."""
        if self._server is not None:
            await self._server.drain()

    async def close(self) -> None:
        """End everything now."""
        if self._server is not None:
            await self._server.close()
        if self._admin is not None:
            await self._admin.cleanup()
        if self._fleet is not None:
            await self._fleet.close()
        if self._oversight is not None:
            await self._oversight.close()
        if self._aborts is not None:
            await self._aborts.close()
