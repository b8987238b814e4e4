"""Reads off a gateway's parts what the history is told each second. Counts nothing itself."""

from collections import Counter

from gateway.control.context import AdminContext
from gateway.control.dashboard.history import PoolTotals, StepTotal
from gateway.routing.pool import Pool

_SERVER_ERROR = 5


def pool_totals(context: AdminContext) -> dict[str, PoolTotals]:
    """The totals of all pools."""
    requests: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    spills: Counter[str] = Counter()
    for (taker, _, spilled_from, status_class), count in context.tally.finished_requests().items():
        requests[taker] += count
        if status_class == _SERVER_ERROR:
            failed[taker] += count
        if spilled_from:
            spills[spilled_from] += count
    refused: Counter[str] = Counter()
    for (origin, outcome), count in context.tally.quarantined.items():
        if outcome == "refused":
            refused[origin] += count
    totals: dict[str, PoolTotals] = {}
    for name, pool in context.router.pools.items():
        queue = context.queues[name]
        totals[name] = PoolTotals(
            requests=requests[name],
            failed=failed[name],
            spills=spills[name],
            rejects=refused[name] + queue.full + queue.late + queue.homeless,
            ttft=tuple(context.tally.ttft(name).counts),
            steps=_steps(context, pool),
            gap_us=_gap_us(context, pool),
            in_flight=sum([replica.in_flight for replica in pool.replicas]),
            waiting=pool.waiting,
            booked_us=max([replica.booked_us for replica in pool.replicas], default=0.0),
        )
    return totals


def _steps(context: AdminContext, pool: Pool) -> dict[str, StepTotal]:
    found: dict[str, StepTotal] = {}
    for replica in pool.replicas:
        totals = context.steps.get(replica.name)
        if totals is not None:
            found[replica.name] = StepTotal(
                totals.steps, totals.step_s, totals.forward_s, totals.hook_s, totals.longest_s
            )
    return found


def _gap_us(context: AdminContext, pool: Pool) -> float | None:
    """The median of the gaps on streams, of the replica where it is longest."""
    medians: list[float] = []
    for replica in pool.replicas:
        itl = context.senses.itl(replica.name)
        median = itl.median_us() if itl is not None and itl.on else None
        if median is not None:
            medians.append(median)
    return max(medians, default=None)
