"""The one place where the parts are put together: a configuration becomes a running gateway."""

import asyncio
import ssl
from typing import cast

import structlog
from aiohttp import web

from gateway.control.admin import AdminContext, create_admin_app
from gateway.control.assembly import build_router
from gateway.control.classifier import build_classifier
from gateway.control.config import Config
from gateway.control.metrics import Metrics
from gateway.control.tally import Tally
from gateway.feed.abort import Aborts
from gateway.feed.health import HealthMonitor, HealthPolicy
from gateway.proxy import Link, Proxy
from gateway.routing.replica import Replica
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.server import Server
from gateway.wire.upstream import Upstream

log = structlog.get_logger("steplane")


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
        replicas = {replica: pool for pool in self.router.pools.values() for replica in pool.replicas}
        links = {replica: _link(replica, timeouts) for replica in replicas}
        tally = Tally()
        classifier = build_classifier(config)
        self._aborts = Aborts()
        self._health = HealthMonitor(
            [
                (replica, HealthPolicy(**config.pools[pool.name].health.model_dump()))
                for replica, pool in replicas.items()
            ],
            clock=loop.time,
            last_progress=lambda replica: links[cast(Replica, replica)].upstream.last_read_at,
        )
        proxy = Proxy(self.router, links, classifier, tally, self._aborts, self._health)
        self._server = Server(proxy, Limits(**config.limits.model_dump()), timeouts)
        self._server.upstreams.update(link.upstream for link in links.values())
        self.data_address = await self._server.listen(config.listen.host, config.listen.port)
        context = AdminContext(
            config, self.router, self._health, Metrics(self.router.pools, tally), classifier, lambda: self.draining
        )
        self._admin = web.AppRunner(create_admin_app(context), access_log=None)
        await self._admin.setup()
        site = web.TCPSite(self._admin, config.admin.listen.host, config.admin.listen.port)
        await site.start()
        self.admin_address = self._admin.addresses[0][:2]
        await self._health.start()

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
        if self._aborts is not None:
            await self._aborts.close()


def _link(replica: Replica, timeouts: Timeouts) -> Link:
    tls = ssl.create_default_context() if replica.tls else None
    upstream = Upstream(replica.host, replica.port, timeouts, tls=tls, name=replica.name)
    return Link(replica, upstream, b"x-steplane-replica: %b\r\n" % replica.name.encode())
