"""The admin port: liveness, readiness, metrics and the API, put together.

What it answers is in gateway/control/api, a file for each noun; who may ask in auth.py; the page in dashboard/.
"""

from dataclasses import dataclass

from aiohttp import web
from prometheus_client.registry import CollectorRegistry

from gateway import __version__
from gateway.control.api.config import ConfigApi
from gateway.control.api.costs import CostsApi
from gateway.control.api.decisions import DecisionsApi
from gateway.control.api.drain import DrainApi
from gateway.control.api.events import EventsApi
from gateway.control.api.explain import ExplainApi
from gateway.control.api.members import MembersApi
from gateway.control.api.namings import NamingsApi
from gateway.control.api.openapi import OpenApi
from gateway.control.api.operations import index
from gateway.control.api.pools import PoolsApi
from gateway.control.api.quarantine import QuarantineApi
from gateway.control.api.reply import STREAMS, end_streams, json_reply, openai_errors
from gateway.control.api.state import StateApi
from gateway.control.api.tenants import TenantsApi
from gateway.control.api.whoami import whoami
from gateway.control.auth import guard
from gateway.control.context import AdminContext
from gateway.control.dashboard.page import Page, wants_page
from gateway.control.discoverymetrics import DiscoveryMetrics
from gateway.control.exposition import page
from gateway.control.metrics import Metrics, create_registry
from gateway.control.reloadmetrics import ReloadMetrics
from gateway.control.retrymetrics import RetryMetrics
from gateway.control.rulemetrics import RuleMetrics
from gateway.control.stepmetrics import StepMetrics
from gateway.control.trustmetrics import TrustMetrics
from gateway.control.upstreammetrics import UpstreamMetrics
from gateway.control.warmupmetrics import WarmUpMetrics
from gateway.control.wiremetrics import WireMetrics

_APIS = (
    PoolsApi,
    MembersApi,
    QuarantineApi,
    NamingsApi,
    CostsApi,
    StateApi,
    TenantsApi,
    ConfigApi,
    DecisionsApi,
    ExplainApi,
    DrainApi,
    OpenApi,
)

REGISTRY = web.AppKey("registry", CollectorRegistry)
"""What the application's `/metrics` shows."""


def create_admin_app(context: AdminContext, *, guarded: bool = True) -> web.Application:
    """The application; who runs it also says where it listens.

    guarded: it asks who comes; not where a supervisor has asked already.
    """
    registry = create_registry(
        Metrics(context.router.pools, context.tally),
        RetryMetrics(context.router.pools, context.tally),
        RuleMetrics(context),
        WarmUpMetrics(context.router.pools, context.warm_ups),
        StepMetrics(context),
        TrustMetrics(context),
        UpstreamMetrics(context.router.pools, context.upstreams),
        ReloadMetrics(context.reloader.reloads),
        DiscoveryMetrics(context.discovery),
        WireMetrics(context.wire, context.open_connections),
    )
    admin = _Admin(context, registry, Page())
    limit_bytes = context.config.limits.max_body_bytes
    middlewares = [guard(lambda: context.config.admin)] if guarded else []
    middlewares.append(openai_errors(lambda: ", ".join(index(workers=False))))
    app = web.Application(middlewares=middlewares, client_max_size=limit_bytes)
    app[REGISTRY] = registry
    app[STREAMS] = set()
    app.on_shutdown.append(end_streams)
    app.add_routes(admin.routes())
    app.add_routes(admin.page.routes())
    events = EventsApi(context)
    app.add_routes(events.routes())
    app.cleanup_ctx.append(events.running)
    for api in _APIS:
        app.add_routes(api(context).routes())
    return app


@dataclass(frozen=True, slots=True)
class _Admin:
    context: AdminContext
    registry: CollectorRegistry
    page: Page

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.index),
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
            web.get("/api/v1/whoami", whoami),
        ]

    async def index(self, request: web.Request) -> web.Response:
        if wants_page(request):
            return await self.page.page(request)
        return json_reply({"name": "steplane", "version": __version__, "endpoints": index(workers=False)})

    async def healthz(self, _: web.Request) -> web.Response:
        return json_reply({"status": "alive"})

    async def readyz(self, _: web.Request) -> web.Response:
        """Ready means: a balancer should send requests here.

        Not while draining, not before every replica has been probed once, and not while no pool has a replica that is
        up. One pool that is down does not make the gateway unready: it spills or answers 503 by itself, and taking the
        gateway out would take the other pools with it.
        """
        pools = self.context.router.pools.values()
        reason = None
        if self.context.is_draining():
            reason = "draining"
        elif not self.context.health.all_probed:
            reason = "replicas have not been probed yet"
        elif not any(pool.is_available() for pool in pools):
            reason = "no replica of any pool is available"
        state = {"ready": reason is None, "reason": reason, "pools": {pool.name: pool.is_available() for pool in pools}}
        return json_reply(state, status=200 if reason is None else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = await page(self.registry, request.headers.get("accept", ""))
        return web.Response(body=body, headers={"content-type": content_type})
