"""The one place where the parts are put together: a configuration becomes a running gateway."""

import asyncio
import ssl
import time
from typing import cast

from aiohttp import web

from gateway.breaker.replica import ReplicaBreaker, ReplicaTransition
from gateway.call import Link, Terms
from gateway.control.admin import create_admin_app
from gateway.control.assembly import build_router, build_store, build_targets, build_tenants
from gateway.control.classifier import build_classifier
from gateway.control.config import Config, PoolConfig
from gateway.control.context import AdminContext
from gateway.control.tally import Tally
from gateway.feed.abort import Aborts
from gateway.feed.health import HealthMonitor, HealthPolicy
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.oversight import SPENT_TTL_S, Oversight
from gateway.proxy import Proxy
from gateway.routing.admission import AdmissionPolicy, AdmissionQueue
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.tenantgate import TenantGate
from gateway.tenants.register import SPENT_KIND
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.server import Server
from gateway.wire.upstream import Upstream


class Gateway:
    """A gateway in front of the replicas of `config`. Lives on the event loop that starts it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.router = build_router(config)
        self.data_address = ("", 0)
        self.admin_address = ("", 0)
        self._server: Server | None = None
        self._health: HealthMonitor | None = None
        self._aborts: Aborts | None = None
        self._oversight: Oversight | None = None
        self._senses: Senses | None = None
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
        terms = {
            name: self._terms(pool, config.pools[name], oversight, loop) for name, pool in self.router.pools.items()
        }
        links = {
            replica: Link(replica, _upstream(replica, timeouts), terms[pool.name])
            for pool in self.router.pools.values()
            for replica in pool.replicas
        }
        tally = Tally()
        classifier = build_classifier(config)
        self._aborts = Aborts()
        self._health = HealthMonitor(
            [(replica, HealthPolicy(**config.pools[replica.pool].health.model_dump())) for replica in links],
            clock=loop.time,
            last_progress=lambda replica: links[cast(Replica, replica)].last_read_at,
        )
        tenants = build_tenants(config, loop.time, time.time)
        proxy = Proxy(
            self.router,
            links,
            terms,
            classifier,
            oversight,
            running,
            tenants,
            tally,
            self._aborts,
            self._health,
            refuses_control=config.control_paths == "refuse",
        )
        oversight.evict = proxy.evict
        if tenants.restricts:
            gate = proxy.gate = TenantGate(tenants, proxy.decide, loop.time)
            oversight.spent = gate.observed
        oversight.share_tenants(tenants)
        limits = Limits(**config.limits.model_dump())
        self._server = Server(proxy, limits, timeouts, config.forwarding.build())
        self._server.upstreams.update(link.upstream for link in links.values())
        opened = [await self._server.listen(**each.arguments(config.folder)) for each in config.listen]
        self.data_address = opened[0]
        self._senses = Senses(running, oversight, clock=loop.time)
        context = AdminContext(
            config=config,
            router=self.router,
            health=self._health,
            classifier=classifier,
            tally=tally,
            is_draining=lambda: self.draining,
            trust=oversight.trust,
            book=oversight.book,
            store=oversight.store,
            tenants=tenants,
            running=running,
            senses=self._senses,
            queues={name: each.queue for name, each in terms.items()},
            breakers={name: each.breaker for name, each in terms.items()},
            upstreams={replica.name: link.upstream for replica, link in links.items()},
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
        for link in links.values():
            oversight.add(link)
        await oversight.start()
        await self._senses.start(build_targets(config))
        for link in links.values():
            link.itl = self._senses.itl(link.replica.name)
        await self._health.start()

    def _terms(self, pool: Pool, config: PoolConfig, oversight: Oversight, loop: asyncio.AbstractEventLoop) -> Terms:
        replicas = {replica.name: replica for replica in pool.replicas}

        def changed(transition: ReplicaTransition) -> None:
            oversight.replica_changed(replicas[transition.replica], transition)

        breaker = ReplicaBreaker(
            pool.name,
            replicas,
            config.ejection.policy(),
            clock=loop.time,
            notify=changed,
            is_up=lambda name: replicas[name].healthy,
        )
        pool.on_trial = lambda replica: breaker.trial_began(replica.name)
        admission = AdmissionPolicy(queue=config.admission.queue, max_wait_s=config.admission.max_wait_s)
        return Terms(
            pool,
            AdmissionQueue(pool, admission, clock=loop.time, call_at=loop.call_at),
            breaker,
            config.hard_limit,
            config.breaker.on_open,
            config.breaker.on_trip,
            pool.name == self.config.quarantine_pool,
        )

    @property
    def draining(self) -> bool:
        """On its way out: running requests are finished, new ones are not accepted."""
        return self._server is not None and self._server.draining

    async def wait_all_up(self) -> None:
        """Return when every replica has been up at least once; to be called after `start`."""
        assert self._health is not None
        await self._health.wait_all_up()

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
        if self._health is not None:
            await self._health.close()
        if self._senses is not None:
            await self._senses.close()
        if self._oversight is not None:
            await self._oversight.close()
        if self._aborts is not None:
            await self._aborts.close()


def _upstream(replica: Replica, timeouts: Timeouts) -> Upstream:
    tls = ssl.create_default_context() if replica.tls else None
    return Upstream(replica.host, replica.port, timeouts, tls=tls, name=replica.name)
