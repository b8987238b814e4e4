"""From a checked configuration to the objects of the running gateway that choose, sense and remember."""

from collections.abc import Callable, Iterator, Mapping

from gateway.control.config import Config, PoolConfig
from gateway.feed.target import Target
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Router
from gateway.routing.rule import compile_rule
from gateway.routing.settings import Reject, Spill
from gateway.state.memory import MemoryStore
from gateway.state.store import Store


def build_router(config: Config, *, available: bool = False) -> Router:
    """The rules, pools and replicas of `config`.

    available: the state in which replicas begin. A gateway begins with none and lets the health monitor admit them;
    a decision on paper (`steplane explain`) takes all as up.
    """
    pools = {name: _pool(name, pool, available) for name, pool in config.pools.items()}
    rules = [compile_rule(rule.name, rule.pool, rule.when) for rule in config.rules]
    return Router(rules, pools, config.default_pool, config.quarantine_pool)


def build_targets(config: Config) -> Iterator[Target]:
    """All replicas, as the senses see them."""
    limits = {name: _least_limit(pool) for name, pool in config.pools.items()}
    # What runs in quarantine is judged by the limits of where it came from, whichever pool that was.
    least = min((limit for limit in limits.values() if limit is not None), default=None)
    for name, pool in config.pools.items():
        for replica in pool.replicas:
            yield Target(
                name=replica.label,
                url=str(replica.url),
                engine=pool.engine,
                feed=pool.feed if replica.feed is None else str(replica.feed),
                token=pool.feed_token,
                budget_us=least if name == config.quarantine_pool else limits[name],
                compile_limit_ms=pool.compile_limit_ms,
            )


def build_store(config: Config, clock: Callable[[], float], ttls_s: Mapping[str, float]) -> Store:
    """Where breakers and costs are kept. Raises ConfigError where Redis is wanted and its client is not installed."""
    redis = config.state.redis
    if redis is None:
        return MemoryStore(clock=clock, ttls_s=ttls_s)
    from gateway.state.redis import RedisStore

    return RedisStore(redis.options(config.folder), clock=clock, ttls_s=ttls_s)


def _least_limit(pool: PoolConfig) -> float | None:
    return pool.hard_limit if pool.step_budget_us is None else pool.step_budget_us


def _pool(name: str, config: PoolConfig, available: bool) -> Pool:
    replicas = tuple(
        Replica(
            name=replica.label,
            url=str(replica.url),
            host=replica.url.host,
            port=replica.url.port,
            tls=replica.url.scheme == "https",
            engine=config.engine,
            pool=name,
            available=available,
        )
        for replica in config.replicas
    )
    unavailable = config.when_unavailable
    when: Reject | Spill = Reject(unavailable.reject.retry_after_s if unavailable.reject else 1)
    if unavailable.spill is not None:
        when = Spill(unavailable.spill)
    return Pool(
        name,
        replicas,
        config.step_budget_us,
        when,
        max_in_flight=config.admission.max_in_flight,
        max_structured=config.admission.max_structured,
    )
