"""A worker's part of the step budgets: held to in its pools, and what it holds and wants of them, for the supervisor.

A pool without a budget and caps is left alone. Says something only when it has changed.
"""

import math
from collections.abc import Mapping

from gateway.control.config import PoolConfig
from gateway.routing.admission import AdmissionQueue
from gateway.routing.pool import Pool
from gateway.workers.messages import Demand, Demands, Shares

_SAME = 1e-6


class Lending:
    """The parts of one worker, by pool; 1.0 is the whole."""

    def __init__(self, parts: Mapping[str, float]) -> None:
        self._parts = dict(parts)
        self._alone: frozenset[str] = frozenset()
        self._heard = 0
        self._told: Demands | None = None

    def grant(self, shares: Shares) -> None:
        """Take up new parts; `hold` puts them in force."""
        self._parts |= shares.parts
        self._alone = frozenset(shares.alone)
        self._heard = shares.number

    def hold(self, configs: Mapping[str, PoolConfig], pools: Mapping[str, Pool]) -> None:
        """Have each pool keep to its part of what its configuration says, which a reload may have changed."""
        for name, pool in pools.items():
            config = configs.get(name)
            if config is None or not is_bounded(config):
                continue
            part = self._parts.get(name, 1.0)
            pool.max_in_flight = _part_of(config.admission.max_in_flight, part)
            pool.max_structured = _part_of(config.admission.max_structured, part)
            budget_us = None if config.step_budget_us is None else config.step_budget_us * part
            alone_us = math.inf if budget_us is None or part >= 1.0 or name in self._alone else budget_us
            if (budget_us, alone_us) != (pool.step_budget_us, pool.alone_us):
                pool.alone_us = alone_us
                pool.set_step_budget(budget_us)

    def news(
        self, configs: Mapping[str, PoolConfig], pools: Mapping[str, Pool], queues: Mapping[str, AdmissionQueue]
    ) -> Demands | None:
        """What is held and wanted of each pool with a budget or caps; None if that is as it was told last."""
        demands = {
            name: self._demand(name, configs[name], pool, queues[name])
            for name, pool in pools.items()
            if name in configs and is_bounded(configs[name])
        }
        news = Demands(self._heard, demands)
        if news == self._told or not demands:
            return None
        self._told = news
        return news

    def _demand(self, name: str, config: PoolConfig, pool: Pool, queue: AdmissionQueue) -> Demand:
        part_us = (pool.step_budget_us or math.inf) + _SAME
        return Demand(
            part=self._parts.get(name, 1.0),
            held=_held(config, pool),
            waiting=pool.waiting,
            wants_alone=pool.waiting > 0 and queue.dearest_us() > part_us,
            has_alone=name in self._alone or any(replica.booked_us > part_us for replica in pool.replicas),
        )


def is_bounded(config: PoolConfig) -> bool:
    """Whether there is anything of a pool to be shared out."""
    admission = config.admission
    return config.step_budget_us is not None or admission.max_in_flight > 0 or admission.max_structured > 0


def _part_of(cap: int, part: float) -> int:
    """A part of a count; at least one, for 0 would mean any number."""
    return max(1, int(cap * part + _SAME)) if cap else 0


def _held(config: PoolConfig, pool: Pool) -> float:
    """The largest part that is taken of anything on any replica, rounded up so that small changes are no news."""
    held = 0.0
    for replica in pool.replicas:
        if config.step_budget_us is not None:
            held = max(held, replica.booked_us / config.step_budget_us)
        if config.admission.max_in_flight:
            held = max(held, replica.in_flight / config.admission.max_in_flight)
        if config.admission.max_structured:
            held = max(held, replica.structured / config.admission.max_structured)
    return min(1.0, math.ceil(held * 100 - _SAME) / 100)
