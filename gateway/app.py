"""The one place where the parts are put together: a configuration becomes a running gateway."""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from gateway.control.admin import REGISTRY, create_admin_app
from gateway.control.assembly import build_store, build_tenants, route_over
from gateway.control.classifier import build_classifier
from gateway.control.config import Config
from gateway.control.context import AdminContext
from gateway.control.dashboard.memory import Memory, new_memory
from gateway.control.retryplans import build_plans
from gateway.control.tally import Tally
from gateway.control.warmuptally import WarmUpTally
from gateway.dataplane import DataPlane
from gateway.discoveries import Discoveries
from gateway.enginereports import EngineReports
from gateway.feed.abort import Aborts
from gateway.feed.catalogue import Catalogue
from gateway.feed.running import RunningRequests
from gateway.feed.senses import Senses
from gateway.fleet import Fleet
from gateway.insight import Insight
from gateway.models import Models
from gateway.oversight import SPENT_TTL_S, Oversight
from gateway.proxy import Proxy
from gateway.recorder import Recorder
from gateway.reloading import Reloading
from gateway.routing.admission import AdmissionQueue
from gateway.routing.replica import Replica
from gateway.routing.router import Router
from gateway.seat import Seat
from gateway.shadows import Shadows
from gateway.sitters import Sitters
from gateway.tail import Tail
from gateway.takeover import TakeOver
from gateway.tenantgate import TenantGate
from gateway.tenants.register import SPENT_KIND
from gateway.upstreams import Upstreams
from gateway.warmups import WarmUps
from gateway.watch import Watch
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.server import Server

_LAST_REQUEST_S = 2.0
"""How long an idle connection may bring a last request when another gateway has taken over."""


class Gateway:
    """A gateway in front of the replicas of `config`. Lives on the event loop that starts it."""

    def __init__(self, config: Config, seat: Seat | None = None, plane: DataPlane | None = None) -> None:
        """`seat`: its place among others, where it is one of several workers.

        plane: carries the requests: nothing listens for clients here.
        """
        self.config = config
        """In force; another one after a reload."""
        self.reloading: Reloading
        """Of a gateway that was started."""
        self.on_reloaded: Callable[[], None] = _nothing
        """Called when another configuration is in force."""
        self.on_end_asked: Callable[[], None] = _nothing
        """Called when somebody asks for the end by the API; to be set before the start."""
        self._seat = seat
        self._plane = plane
        self.router: Router
        """Of a gateway that was started."""
        self.data_address = ("", 0)
        self.admin_address = ("", 0)
        self._server: Server | None = None
        self._listeners: dict[int, dict[str, Any]] = {}
        """How to listen as each listener of the configuration. Kept: files of a certificate may be unfit later on."""
        self._proxy: Proxy | None = None
        self._fleet: Fleet | None = None
        self._reports: EngineReports | None = None
        self._aborts: Aborts | None = None
        self._models: Models | None = None
        self._shadows: Shadows | None = None
        self._oversight: Oversight | None = None
        self._warm_ups: WarmUps | None = None
        self._watch: Watch | None = None
        self._take_over: TakeOver | None = None
        self._recorder: Recorder | None = None
        self._discoveries: Discoveries | None = None
        self._admin: web.AppRunner | None = None

    async def start(self) -> None:
        """Bind both ports and begin to watch the replicas. Raises OSError, with nothing left open."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        config = self._fitted(self.config)
        loop = asyncio.get_running_loop()
        self.reloading = Reloading(self.config, config.source, self._become)
        running = RunningRequests()
        policy = config.breaker.policy(config.quarantine_pool)
        books = None if self._seat is None else self._seat.books
        store = build_store(config, loop.time, {SPENT_KIND: SPENT_TTL_S}, books)
        oversight = self._oversight = Oversight(policy, store, running, loop.time)
        upstreams = Upstreams(self._plane)
        senses = Senses(running, oversight, clock=loop.time, reach=upstreams.reach)
        fleet = self._fleet = Fleet(config, oversight, senses, upstreams.connect, upstreams.reach)
        self._discoveries = Discoveries(fleet, loop.time)
        self._reports = EngineReports(fleet, upstreams.reach)
        tally = Tally()
        classifier = build_classifier(config)
        self._aborts = Aborts(upstreams.reach, senses.feed_of)
        tenants = build_tenants(config, loop.time, time.time)
        self.router = route_over(config, fleet.pools, Insight(oversight.book, oversight.trust, tenants))
        proxy = self._proxy = Proxy(
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
        models = Catalogue(lambda: fleet.links, config.models.refresh_s, clock=loop.time, reach=upstreams.reach)
        self._models = proxy.models = Models(models)
        proxy.models.configure(config.models)
        self._shadows = proxy.shadows = Shadows(fleet.links, tally, upstreams.reach)
        if tenants.restricts:
            gate = proxy.gate = TenantGate(tenants, proxy.decide, loop.time)
            oversight.spent = gate.observed
        oversight.share_tenants(tenants)
        self._record(config, proxy)
        server = self._server = _server(config, proxy)
        server.upstreams = fleet.connections
        await self._listen(config, server)
        counted = WarmUpTally()
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
            pool_steps=oversight.pool_steps,
            transitions=oversight.transitions,
            clock=loop.time,
            wall=time.time,
            reloader=self.reloading,
            members=fleet,
            discovery=self._discoveries.errors,
            wire=server.counts,
            open_connections=lambda: len(server.connections),
            warm_ups=counted,
            end=self.on_end_asked,
            memory=new_memory(loop.time),
        )
        self._watch = Watch(config, proxy, tally)
        self._take_over = TakeOver(fleet, proxy, server, oversight, context, self._watch)
        self._warm_ups = warm_ups = WarmUps(
            fleet,
            lambda: context.classifier,
            oversight.trust.barred_signatures,
            fleet.health.report_refused,
            counted,
            loop.time,
            upstreams.reach,
        )
        self._take_up(config)

        def left(replica: Replica) -> None:
            tally.forget_replica(replica.name)
            warm_ups.left(replica)

        fleet.left = left
        fleet.health.started = self._started
        oversight.ended = fleet.engine_ended
        _remember(context.memory, proxy, oversight, loop.time)
        await self._open_admin(config, context)
        await oversight.start()
        await fleet.start()
        self._discoveries.update(config)
        self.reloading.start()
        self._reports.start()
        self._models.catalogue.start()

    def _record(self, config: Config, proxy: Proxy) -> None:
        """Write decisions down, if that is wanted."""
        if config.record_decisions is not None:
            self._recorder = Recorder(config.record_decisions, config.folder)
            self._recorder.start()
            proxy.witnesses = (*proxy.witnesses, self._recorder)

    async def _listen(self, config: Config, server: Server) -> None:
        """Take clients; a gateway of several gets its sockets from the supervisor when it is ready (`accept`)."""
        if self._plane is not None:
            server.look_after()
            self.data_address = await self._plane.start(config, server.protocol)
        elif self._seat is None:
            opened = [await server.listen(**each.arguments(config.folder)) for each in config.listen]
            self.data_address = opened[0]

    async def _open_admin(self, config: Config, context: AdminContext) -> None:
        """The admin port; the one that people see is the supervisor's where there are several gateways."""
        app = create_admin_app(context, guarded=self._seat is None)
        self.registry = app[REGISTRY]
        self._admin = web.AppRunner(app, access_log=None)
        await self._admin.setup()
        if self._seat is None:
            await web.TCPSite(self._admin, config.admin.listen.host, config.admin.listen.port).start()
            self.admin_address = self._admin.addresses[0][:2]
        else:
            await web.UnixSite(self._admin, self._seat.admin).start()

    def _started(self, replica: Replica) -> None:
        """A replica is up and may have been started anew: as another, and with nothing in its caches."""
        if self._models is not None:
            self._models.catalogue.recheck(replica.name)
        if self._reports is not None:
            self._reports.recheck(replica)
        if self._warm_ups is not None:
            self._warm_ups.started(replica)

    def _take_up(self, config: Config) -> None:
        """Know the grammars that are used, if any pool wants that by `config`."""
        assert self._warm_ups is not None
        assert self._proxy is not None
        self._warm_ups.configure(config)
        self._proxy.grammars = self._warm_ups if self._warm_ups.wanted else None

    async def _become(self, config: Config) -> None:
        assert self._take_over is not None
        self.router = await self._take_over.apply(self._fitted(config))
        self._take_up(config)
        self.config = config
        if self._discoveries is not None:
            self._discoveries.update(config)
        self.on_reloaded()

    def _fitted(self, config: Config) -> Config:
        """A configuration as whoever carries the requests can carry it out."""
        return config if self._plane is None else self._plane.fit(config)

    @property
    def draining(self) -> bool:
        """On its way out: running requests are finished, new ones are not accepted."""
        return self._server is not None and self._server.draining

    @property
    def queues(self) -> Mapping[str, AdmissionQueue]:
        """Who waits, by pool."""
        assert self._fleet is not None
        return self._fleet.queues

    async def accept(self, listener: int, sock: socket.socket) -> None:
        """Take clients from a socket, which is then ours, as the configuration's listener of that number does."""
        assert self._server is not None
        if listener not in self._listeners:
            self._listeners[listener] = self.config.listen[listener].arguments(self.config.folder)
        await self._server.listen(**self._listeners[listener] | {"sock": sock})

    def leave_to_others(self, sock: socket.socket) -> None:
        """Take no more clients from a socket that was given to `accept`."""
        assert self._server is not None
        self._server.leave_to_others(sock)

    async def wait_all_probed(self) -> None:
        """Return when the health of every replica is known; to be called after `start`."""
        assert self._fleet is not None
        await self._fleet.health.wait_all_probed()

    async def wait_all_up(self) -> None:
        """Return when every replica has been up at least once; to be called after `start`."""
        assert self._fleet is not None
        await self._fleet.health.wait_all_up()

    async def drain(self) -> None:
        """Stop accepting and wait until the running requests are done, `drain_s` at most."""
        if self._server is None:
            return
        if self._plane is None:
            await self._server.drain()
        else:
            timeouts = self.config.timeouts
            await asyncio.gather(self._server.drain(), self._plane.drain(timeouts.drain_delay_s, timeouts.drain_s))

    async def hand_over(self) -> None:
        """As `drain`, while another gateway takes the clients that come to the same sockets."""
        if self._server is not None:
            await self._server.hand_over(_LAST_REQUEST_S)

    async def close(self) -> None:
        """End everything now."""
        if self._take_over is not None:
            await self.reloading.close()
        if self._discoveries is not None:
            await self._discoveries.close()
        if self._recorder is not None:
            await self._recorder.close()
        if self._plane is not None:
            await self._plane.close()
        if self._server is not None:
            await self._server.close()
        if self._proxy is not None:
            self._proxy.close()
        if self._admin is not None:
            await self._admin.cleanup()
        if self._reports is not None:
            await self._reports.close()
        if self._watch is not None:
            await self._watch.close()
        if self._models is not None:
            await self._models.catalogue.close()
        if self._shadows is not None:
            await self._shadows.close()
        if self._fleet is not None:
            await self._fleet.close()
        if self._warm_ups is not None:
            await self._warm_ups.close()
        if self._oversight is not None:
            await self._oversight.close()
        if self._aborts is not None:
            await self._aborts.close()


def _server(config: Config, proxy: Proxy) -> Server:
    limits, timeouts = Limits(**config.limits.model_dump()), Timeouts(**config.timeouts.model_dump())
    return Server(proxy, limits, timeouts, config.forwarding.build())


def _remember(memory: Memory, proxy: Proxy, oversight: Oversight, clock: Callable[[], float]) -> None:
    """Have the page's memory told of what people may want to see; of decisions only while somebody watches them."""

    def watched(is_watched: bool) -> None:
        proxy.tail = Tail(memory.decisions) if is_watched else None

    memory.portraits.want = Sitters(proxy, memory.portraits, clock).want
    proxy.sightings, oversight.named = memory.portraits, memory.namings.add
    memory.decisions.on_watched = watched


def _nothing() -> None:
    """Nobody wants to know."""
