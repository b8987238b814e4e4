"""The admin port: liveness, readiness, metrics and the API.

Reads the state of the running gateway and changes nothing. It has no login, so it belongs on a private address.
Errors have the shape of OpenAI's: `{"error": {"message", "type", "code"}}`.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from gateway import __version__
from gateway.control.config import Config
from gateway.control.explain import explain_in_turns
from gateway.control.metrics import Metrics, create_registry
from gateway.feed.health import HealthMonitor
from gateway.hookcost import Classifier
from gateway.routing.pool import Pool, Reject
from gateway.routing.replica import Replica
from gateway.routing.router import Router

_log = structlog.get_logger("steplane.admin")

_INDEX = {
    "GET /healthz": "200 while the process runs",
    "GET /readyz": "200 while this gateway should get requests, else 503; says why",
    "GET /metrics": "Prometheus metrics",
    "GET /api/v1/pools": "pools with their replicas, load and state",
    "GET /api/v1/replicas": "replicas with their health",
    "POST /api/v1/explain?path=/v1/chat/completions": "what would be decided for the request body, and why",
}


@dataclass(frozen=True, slots=True)
class AdminContext:
    """What the admin port shows; `is_draining` is asked at each request."""

    config: Config
    router: Router
    health: HealthMonitor
    metrics: Metrics
    classifier: Classifier
    is_draining: Callable[[], bool]


def create_admin_app(context: AdminContext) -> web.Application:
    """The application; who runs it also says where it listens."""
    admin = _Admin(context, create_registry(context.metrics))
    app = web.Application(middlewares=[_openai_errors], client_max_size=context.config.limits.max_body_bytes)
    app.router.add_get("/", admin.index)
    app.router.add_get("/healthz", admin.healthz)
    app.router.add_get("/readyz", admin.readyz)
    app.router.add_get("/metrics", admin.show_metrics)
    app.router.add_get("/api/v1/pools", admin.pools)
    app.router.add_get("/api/v1/replicas", admin.replicas)
    app.router.add_post("/api/v1/explain", admin.explain)
    return app


@dataclass(slots=True)
class _Admin:
    context: AdminContext
    registry: CollectorRegistry

    async def index(self, _: web.Request) -> web.Response:
        return _json({"name": "steplane", "version": __version__, "endpoints": _INDEX})

    async def healthz(self, _: web.Request) -> web.Response:
        return _json({"status": "alive"})

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
        return _json(state, status=200 if reason is None else 503)

    async def show_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(self.registry), headers={"content-type": content_type})

    async def pools(self, _: web.Request) -> web.Response:
        return _json({"pools": [self._pool(pool) for pool in self.context.router.pools.values()]})

    async def replicas(self, _: web.Request) -> web.Response:
        return _json({"replicas": [self._replica(replica) for replica in self._all_replicas()]})

    async def explain(self, request: web.Request) -> web.Response:
        path = request.query.get("path", "/v1/chat/completions")
        method = request.query.get("method", "POST").upper()
        body = await request.read()
        context = self.context
        turns = explain_in_turns(context.router, context.classifier, context.config.hookcost, method, path, body)
        while True:
            try:
                next(turns)
            except StopIteration as done:
                return _json(done.value)
            # The loop carries requests, too.
            await asyncio.sleep(0)

    def _all_replicas(self) -> Iterator[Replica]:
        for pool in self.context.router.pools.values():
            yield from pool.replicas

    def _pool(self, pool: Pool) -> dict[str, Any]:
        unavailable = pool.when_unavailable
        return {
            "name": pool.name,
            "available": pool.is_available(),
            "step_budget_us": pool.step_budget_us,
            "when_unavailable": "reject" if isinstance(unavailable, Reject) else {"spill": unavailable.pool},
            "in_flight": sum(replica.in_flight for replica in pool.replicas),
            "replicas": [self._replica(replica) for replica in pool.replicas],
        }

    def _replica(self, replica: Replica) -> dict[str, Any]:
        record = self.context.health.record(replica)
        return {
            "name": replica.name,
            "pool": replica.pool,
            "url": replica.url,
            "engine": replica.engine,
            "available": replica.available,
            "in_flight": replica.in_flight,
            "state_age_s": round(self.context.health.state_age_s(replica), 3),
            "probe_ms": None if record.latency_s is None else round(record.latency_s * 1e3, 3),
            "failures_in_row": record.failures_in_row,
            "last_error": record.last_error,
        }


@web.middleware
async def _openai_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        message = f"the admin port has no {request.path}; it has {', '.join(_INDEX)}"
        return _error(404, "not_found", message)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        response = _error(405, "method_not_allowed", f"{request.path} takes {allowed}, not {request.method}")
        response.headers["allow"] = allowed
        return response
    except web.HTTPRequestEntityTooLarge as error:
        return _error(413, "body_too_large", error.text or "the body is too large")
    except web.HTTPException as error:
        return _error(error.status, "http_error", error.reason)
    except Exception:
        _log.exception("admin request failed", path=request.path)
        return _error(500, "internal_error", "the admin port failed at this; its log says why")


def _error(status: int, code: str, message: str) -> web.Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return _json({"error": {"message": message, "type": kind, "code": code}}, status=status)


def _json(value: object, status: int = 200) -> web.Response:
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/json")
