"""From a checked configuration to the objects of the running gateway that choose and check replicas."""

from gateway.control.config import Config, PoolConfig
from gateway.routing.pool import Pool, Reject, Spill
from gateway.routing.replica import Replica
from gateway.routing.router import Router
from gateway.routing.rule import compile_rule


def build_router(config: Config, *, available: bool = False) -> Router:
    """The rules, pools and replicas of `config`.

    available: the state in which replicas begin. A gateway begins with none and lets the health monitor admit them;
    a decision on paper (`steplane explain`) takes all as up.
    """
    pools = {name: _pool(name, pool, available) for name, pool in config.pools.items()}
    rules = [compile_rule(rule.name, rule.pool, rule.when) for rule in config.rules]
    return Router(rules, pools, config.default_pool)


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
    if unavailable.spill is not None:
        return Pool(name, replicas, config.step_budget_us, Spill(unavailable.spill))
    retry_after_s = unavailable.reject.retry_after_s if unavailable.reject else 1
    return Pool(name, replicas, config.step_budget_us, Reject(retry_after_s))
