"""A configuration without what only a data plane of our own can do. docs/envoy.md says so to people.

Envoy has sent a request on when we hear of what became of it: nothing can be sent again from here, no second replica
asked beside the first, and no connection kept.
"""

from collections.abc import Iterator

from gateway.control.config import Config, PoolConfig
from gateway.control.ruleconfig import RuleConfig

_CONNECTIONS = {"max_requests_per_connection": 1, "min_idle": 0, "max_connections": 0}
"""One for each request: each stands for a stream of Envoy's."""


class UnfitError(Exception):
    """A configuration that Envoy can't carry out."""


def fitted(config: Config) -> Config:
    """The configuration for requests that Envoy carries. Raises UnfitError."""
    for name, pool in config.pools.items():
        for replica in pool.replicas:
            if replica.url.path:
                raise UnfitError(
                    f"pools.{name}: replica {replica.label} is at {replica.url}; Envoy is told HOST:PORT, "
                    "so give it the address of a TCP port"
                )
    pools = {name: _fitted_pool(pool) for name, pool in config.pools.items()}
    changed = {
        "pools": pools,
        "rules": [_fitted_rule(rule) for rule in config.rules],
        "forwarding": config.forwarding.model_copy(update={"headers": "off", "via": None}),  # Envoy has said it
    }
    return config.model_copy(update=changed)


def left_out(config: Config) -> Iterator[str]:
    """What the configuration asks for and Envoy does not get, in words."""
    for name, pool in config.pools.items():
        if pool.hedge is not None:
            yield f"pools.{name}.hedge: Envoy has sent the request, and asks no second replica"
        if "retry" in pool.model_fields_set and pool.retry.attempts > 1:
            yield f"pools.{name}.retry: retries are Envoy's to make (`retry_policy`)"
        if "on_trip" in pool.breaker.model_fields_set and pool.breaker.on_trip == "rerun":
            yield f"pools.{name}.breaker.on_trip: `rerun` is `end` here"


def _fitted_pool(pool: PoolConfig) -> PoolConfig:
    retry = pool.retry.model_copy(update={"attempts": 1})
    on_trip = "end" if pool.breaker.on_trip == "rerun" else pool.breaker.on_trip
    breaker = pool.breaker.model_copy(update={"on_trip": on_trip})
    upstream = pool.upstream.model_copy(update=_CONNECTIONS)
    return pool.model_copy(update={"retry": retry, "hedge": None, "breaker": breaker, "upstream": upstream})


def _fitted_rule(rule: RuleConfig) -> RuleConfig:
    retry = None if rule.retry is None else rule.retry.model_copy(update={"attempts": 1})
    return rule.model_copy(update={"retry": retry, "hedge": None})
