"""The admin port: liveness, readiness, metrics and the API, put together.

It has no login, so it belongs on a private address: who reaches it may quarantine and release. What it answers is in
gateway/control/api, a file for each noun.
"""

from dataclasses import dataclass

from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from gateway import __version__
from gateway.control.api.config import ConfigApi
from gateway.control.api.costs import CostsApi
from gateway.control.api.drain import DrainApi
from gateway.control.api.explain import ExplainApi
from gateway.control.api.members import MembersApi
from gateway.control.api.pools import PoolsApi
from gateway.control.api.quarantine import QuarantineApi
from gateway.control.api.reply import json_reply, openai_errors
from gateway.control.api.state import StateApi
from gateway.control.api.tenants import TenantsApi
from gateway.control.context import AdminContext
from gateway.control.discoverymetrics import DiscoveryMetrics
from gateway.control.metrics import Metrics, create_registry
from gateway.control.reloadmetrics import ReloadMetrics
from gateway.control.retrymetrics import RetryMetrics
from gateway.control.rulemetrics import RuleMetrics
from gateway.control.trustmetrics import TrustMetrics
from gateway.control.upstreammetrics import UpstreamMetrics
from gateway.control.wiremetrics import WireMetrics

_INDEX = {
    "GET /healthz": "200 while the process runs",
    "GET /readyz": "200 while this gateway should get requests, else 503; says why",
    "GET /metrics": "Prometheus metrics",
    "GET /api/v1/pools": "pools with their replicas, load, queue and policy",
    "GET /api/v1/replicas": "replicas with their health, breaker, source of step times and booked step budget",
    "GET /api/v1/quarantine": "what is quarantined, and why",
    "GET /api/v1/quarantine/{key}": "one signature or tenant: breaker, observed cost, running requests, audit log",
    "POST /api/v1/quarantine": "quarantine {signature | tenant, author, reason, wait_s | pin}",
    "POST /api/v1/quarantine/{key}/release": "let go {author, reason}",
    "GET /api/v1/audit": "who did what to which breaker, newest first",
    "GET /api/v1/costs?top=20": "the dearest cost signatures: observed beside predicted",
    "GET /api/v1/costs/{signature}": "what was observed of one signature",
    "GET /api/v1/state": "where breakers and costs are shared, and whether that works",
    "GET /api/v1/tenants": "tenants with their rights, limits and what they have left",
    "POST /api/v1/tenants/{tenant}/keys": "make a key that all gateways know {author, reason}",
    "POST /api/v1/tenants/{tenant}/keys/{digest}/revoke": "take it back {author, reason}",
    "GET /api/v1/config?full=false": "where the configuration came from, since when it is in force, the last reload",
    "POST /api/v1/reload?check=false": "read the configuration again and apply it, or only check it",
    "POST /api/v1/pools/{pool}/replicas": "add a replica {url, name}",
    "DELETE /api/v1/pools/{pool}/replicas/{replica}": "take it out; what runs there is finished",
    "POST /api/v1/pools/{pool}/replicas/{replica}/drain": "send nothing new there",
    "POST /api/v1/pools/{pool}/replicas/{replica}/undrain": "send requests there again",
    "POST /api/v1/drain": "end in good order, as SIGTERM does",
    "POST /api/v1/explain?path=/v1/chat/completions": "what would be decided for the request body, and why",
}

REGISTRY = web.AppKey("registry", CollectorRegistry)
"""What the application's `/metrics` shows."""


def create_admin_app(context: AdminContext) -> web.Application:
    """The application; who runs it also says where it listens."""
    registry = create_registry(
        Metrics(context.router.pools, context.tally),
        RetryMetrics(context.router.pools, context.tally),
        RuleMetrics(context),
        TrustMetrics(context),
        UpstreamMetrics(context.router.pools, context.upstreams),
        ReloadMetrics(context.reloader.reloads),
        DiscoveryMetrics(context.discovery),
        WireMetrics(context.wire, context.open_connections),
    )
    admin = _Admin(context, registry)
    limit_bytes = context.config.limits.max_body_bytes
    app = web.Application(middlewares=[openai_errors(lambda: ", ".join(_INDEX))], client_max_size=limit_bytes)
    app[REGISTRY] = registry
    app.add_routes(admin.routes())
    for api in (PoolsApi, MembersApi, QuarantineApi, CostsApi, StateApi, TenantsApi, ConfigApi, ExplainApi, DrainApi):
        app.add_routes(api(context).routes())
    return app


@dataclass(frozen=True, slots=True)
class _Admin:
    context: AdminContext
    registry: CollectorRegistry

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.index),
            web.get("/healthz", self.healthz),
            web.get("/readyz", self.readyz),
            web.get("/metrics", self.metrics),
        ]

    async def index(self, _: web.Request) -> web.Response:
        return json_reply({"name": "steplane", "version": __version__, "endpoints": _INDEX})

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
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(self.registry), headers={"content-type": content_type})
