"""From a checked configuration to the objects of the running gateway that choose, sense and remember."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gateway.control.config import Config, PoolConfig, ReplicaConfig
from gateway.feed.target import Target
from gateway.hookcost.prices import backend_label
from gateway.routing.knowledge import NOTHING_KNOWN, Knowledge
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Router
from gateway.routing.settings import PoolSettings, Reject, Spill
from gateway.state.memory import MemoryStore
from gateway.state.socketstore import SocketStore
from gateway.state.store import Store
from gateway.tenants.register import Register


def build_router(config: Config, *, available: bool = False) -> Router:
    """The rules, pools and replicas of `config`, for a decision that nobody carries out.

    available: whether the replicas are taken as up (`steplane explain` does).
    """
    pools = {
        name: build_pool(name, pool, [build_replica(name, pool, each, available=available) for each in pool.replicas])
        for name, pool in config.pools.items()
    }
    return route_over(config, pools)


def route_over(config: Config, pools: Mapping[str, Pool], knows: Knowledge = NOTHING_KNOWN) -> Router:
    """The rules of `config` over the pools that there are. `knows`: what they may ask of the past."""
    rules = [rule.compiled() for rule in config.rules]
    return Router(rules, pools, config.default_pool, config.quarantine_pool, knows)


def build_target(config: Config, pool_name: str, replica: ReplicaConfig) -> Target:
    """A replica of a pool, as the senses see it."""
    pool = config.pools[pool_name]
    return Target(
        name=replica.label,
        url=str(replica.url),
        engine=pool.engine,
        feed=pool.feed if replica.feed is None else str(replica.feed),
        token=pool.feed_token,
        budget_us=least_limit(config) if pool_name == config.quarantine_pool else _least_limit(pool),
        compile_limit_ms=pool.compile_limit_ms,
    )


def least_limit(config: Config) -> float | None:
    """The smallest limit of all pools: what runs in quarantine is judged by where it came from, whichever that was."""
    limits = [_least_limit(pool) for pool in config.pools.values()]
    return min((limit for limit in limits if limit is not None), default=None)


def build_store(
    config: Config, clock: Callable[[], float], ttls_s: Mapping[str, float], books: Path | None = None
) -> Store:
    """Where breakers and costs are kept. Raises ConfigError where Redis is wanted and its client is not installed.

    books: the socket of a supervisor that keeps them for its workers, where there is no Redis.
    """
    redis = config.state.redis
    if redis is None:
        return (
            MemoryStore(clock=clock, ttls_s=ttls_s) if books is None else SocketStore(books, clock=clock, ttls_s=ttls_s)
        )
    from gateway.state.redis import RedisStore

    return RedisStore(redis.options(config.folder), clock=clock, ttls_s=ttls_s)


def build_tenants(config: Config, clock: Callable[[], float], wall: Callable[[], float]) -> Register:
    """Who holds which key, and what each tenant may do. Raises ValueError where a file of keys can't be read."""
    tenants = config.tenants
    return Register(
        clock,
        wall,
        header=tenants.header,
        require_key=tenants.require_key,
        named=tenants.profiles(),
        unnamed=tenants.unnamed(),
        keys=tenants.keys(config.folder),
    )


def _least_limit(pool: PoolConfig) -> float | None:
    return pool.hard_limit if pool.step_budget_us is None else pool.step_budget_us


def build_pool(name: str, config: PoolConfig, replicas: Iterable[Replica] = ()) -> Pool:
    """A pool with these replicas."""
    pool = Pool(name, tuple(replicas))
    pool.reconfigure(pool_settings(config))
    return pool


def pool_settings(config: PoolConfig) -> PoolSettings:
    """What a pool may be told while it runs."""
    unavailable = config.when_unavailable
    when: Reject | Spill = Reject(unavailable.reject.retry_after_s if unavailable.reject else 1)
    if unavailable.spill is not None:
        when = Spill(unavailable.spill)
    return PoolSettings(
        step_budget_us=config.step_budget_us,
        when_unavailable=when,
        when_full=None if config.when_full.spill is None else Spill(config.when_full.spill),
        max_in_flight=config.admission.max_in_flight,
        max_structured=config.admission.max_structured,
        balance=config.plan,
        capabilities=config.capabilities.capabilities(),
        backend=None if config.backend is None else backend_label(*config.backend),
        spells_schemas=config.canonicalize_schema,
    )


def build_replica(pool: str, config: PoolConfig, replica: ReplicaConfig, *, available: bool = False) -> Replica:
    """A replica of a pool of that name."""
    return Replica(
        name=replica.label,
        url=str(replica.url),
        host=replica.url.host,
        port=replica.url.port,
        tls=replica.url.scheme == "https",
        engine=config.engine,
        pool=pool,
        available=available,
        weight=replica.weight,
        zone=replica.zone,
    )
