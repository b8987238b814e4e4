"""`/api/v1/pools` and `/api/v1/replicas`: what there is, what runs on it, what it may hold, and who is trusted."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from gateway.control.api.reply import large_json_reply, rounded
from gateway.control.context import AdminContext
from gateway.control.inturns import Pace, giving_way
from gateway.control.upstreammetrics import failures_of
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.settings import Reject
from gateway.wire.upstream import Upstream


@dataclass(frozen=True, slots=True)
class PoolsApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/pools", self.pools), web.get("/api/v1/replicas", self.replicas)]

    async def pools(self, _: web.Request) -> web.Response:
        """All pools, each with its replicas."""
        pace = Pace()
        return await large_json_reply({"pools": [await self._pool(pool, pace) for pool in self._pools()]})

    async def replicas(self, _: web.Request) -> web.Response:
        """All replicas."""
        pace = Pace()
        found = [each for pool in self._pools() for each in await self._replicas(pool, pace)]
        return await large_json_reply({"replicas": found})

    def _pools(self) -> Iterator[Pool]:
        """All of them, but for those that go while the others are described."""
        pools = self.context.router.pools
        return (pool for pool in list(pools.values()) if pools.get(pool.name) is pool)

    async def _pool(self, pool: Pool, pace: Pace) -> dict[str, Any]:
        about = self._about(pool)
        return about | {"replicas": await self._replicas(pool, pace)}

    def _about(self, pool: Pool) -> dict[str, Any]:
        unavailable = pool.when_unavailable
        config = self.context.config.pools[pool.name]
        return {
            "name": pool.name,
            "available": pool.is_available(),
            "quarantine": pool.name == self.context.config.quarantine_pool,
            "step_budget_us": pool.step_budget_us,
            "hard_limit_us": config.hard_limit,
            "compile_limit_ms": config.compile_limit_ms,
            "on_open": config.breaker.on_open,
            "on_trip": config.breaker.on_trip,
            "max_in_flight": pool.max_in_flight or None,
            "max_structured": pool.max_structured or None,
            "when_full": "wait" if pool.when_full is None else {"spill": pool.when_full.pool},
            "when_unavailable": "reject" if isinstance(unavailable, Reject) else {"spill": unavailable.pool},
            "balance": config.balance.label,
            "grammar_backend": pool.backend,
            "capabilities": None if pool.capabilities is None else pool.capabilities.document(),
            "in_flight": sum(replica.in_flight for replica in pool.replicas),
            "queue": self._queue(pool),
            "discovery": self._discovery(pool),
        }

    def _discovery(self, pool: Pool) -> dict[str, object] | None:
        errors = self.context.discovery()
        return {"error": errors[pool.name]} if pool.name in errors else None

    def _queue(self, pool: Pool) -> dict[str, object]:
        queue = self.context.queues[pool.name]
        return rounded(queue.snapshot()) | {"size": queue.policy.queue, "max_wait_s": queue.policy.max_wait_s}

    async def _replicas(self, pool: Pool, pace: Pace) -> list[dict[str, Any]]:
        """In turns, since the loop carries requests, too."""
        breakers = {each["replica"]: each for each in self.context.breakers[pool.name].snapshot()}
        return [
            self._replica(pool, replica, breakers[replica.name])
            async for replica in giving_way(pool.replicas, pace)
            if not replica.retired
        ]

    def _replica(self, pool: Pool, replica: Replica, breaker: dict[str, object]) -> dict[str, Any]:
        context = self.context
        source = context.senses.status_of(replica.name)
        record = context.health.record(replica)
        return {
            "name": replica.name,
            "pool": replica.pool,
            "url": replica.url,
            "engine": replica.engine,
            "available": replica.available,
            "draining": replica.draining,
            "named_by": context.members.source(replica),
            "resting": replica.resting,
            "warming": replica.warming,
            "healthy": replica.healthy,
            "weight": replica.weight,
            "zone": replica.zone or None,
            "in_flight": replica.in_flight,
            "elsewhere": replica.elsewhere,
            "cache_usage": None if replica.cache_usage < 0.0 else round(replica.cache_usage, 3),
            "guests": replica.guests,
            "structured": replica.structured,
            "booked_us": round(replica.booked_us, 3),
            "step_budget_us": pool.step_budget_us,
            "idle_connections": context.upstreams[replica.name].idle,
            "connections": _connections(context.upstreams[replica.name]),
            "state_age_s": round(context.health.state_age_s(replica), 3),
            "probe_ms": None if record.latency_s is None else round(record.latency_s * 1e3, 3),
            "failures_in_row": record.failures_in_row,
            "last_error": record.last_error,
            "breaker": _without_name(breaker),
            "source": None if source is None else _without_name(asdict(source)),
        }


def _connections(upstream: Upstream) -> dict[str, object]:
    return rounded(
        {
            "open": upstream.open,
            "idle": upstream.idle,
            "waiting": upstream.waiting,
            "connects": upstream.connects,
            "reused": upstream.reused,
            "failures": failures_of(upstream),
            "idle_limit_s": upstream.idle_s,
            "addresses": list(upstream.addresses),
        }
    )


def _without_name(figures: Mapping[str, object]) -> dict[str, object]:
    return rounded({name: value for name, value in figures.items() if name != "replica"})
