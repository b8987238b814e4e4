"""How the page is told of a pool: what it does now, and what its last minute came to."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from gateway.control.context import AdminContext
from gateway.control.dashboard.history import Figures, Latencies
from gateway.routing.pool import Pool
from gateway.routing.settings import Spill

_A_MINUTE = 60.0


def pool_item(context: AdminContext, pool: Pool, states: Counter[str]) -> dict[str, Any]:
    """A pool with its last minute; `states`: of its replicas, how many there are of each."""
    queue = context.queues[pool.name]
    snapshot = queue.snapshot()
    unavailable = pool.when_unavailable
    figures = context.memory.history.figures(pool.name, pool.judged_us)
    config = context.config.pools.get(pool.name)
    oldest_s = snapshot["oldest_s"]
    assert isinstance(oldest_s, float)
    return {
        "available": pool.is_available(),
        "quarantine": pool.name == context.config.quarantine_pool,
        "spills_to": unavailable.pool if isinstance(unavailable, Spill) else None,
        "overflows_to": None if pool.when_full is None else pool.when_full.pool,
        "balance": "" if config is None else config.balance.label,
        "budget_us": pool.judged_us,
        "replicas": len(pool.replicas),
        "states": states,
        "in_flight": sum([replica.in_flight for replica in pool.replicas]),
        "waiting": pool.waiting,
        "oldest_s": round(oldest_s, 1),
        "max_wait_s": queue.policy.max_wait_s,
        "booked": share_of(max([each.booked_us for each in pool.replicas], default=0.0), pool.judged_us),
        **_figures(figures),
    }


def _figures(figures: Figures | None) -> dict[str, Any]:
    if figures is None:
        return {"per_s": 0.0, "per_minute": 0, "failed": 0.0, "spills": 0.0, "rejects": 0.0, **latencies_of(None)}
    return {
        "per_s": round(figures.per_s, 4),
        "per_minute": round(figures.per_s * _A_MINUTE),
        "failed": figures.failed,
        "spills": figures.spills,
        "rejects": figures.rejects,
        **latencies_of(figures.latencies),
    }


def latencies_of(known: Latencies | None) -> dict[str, Any]:
    """What the last minute of a pool or a replica came to; a value for each, None where nothing was measured."""
    if known is None:
        return dict.fromkeys(_LATENCIES) | {"ttft": ()}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(known).items()}


_LATENCIES = tuple(Latencies.__dataclass_fields__)


def share_of(us: float, budget_us: float | None) -> float | None:
    """A cost as a share of a budget; None where there is none."""
    return None if budget_us is None else round(us / budget_us, 3)
