"""Reads off a gateway's parts what the history is told each second. Counts nothing itself."""

from collections import Counter

from gateway.control.context import AdminContext
from gateway.control.dashboard.history import PoolTotals, StepTotal
from gateway.control.inturns import Pace, giving_way
from gateway.routing.replica import Replica

_SERVER_ERROR = 5


async def pool_totals(context: AdminContext) -> dict[str, PoolTotals]:
    """The totals of all pools; read in turns, since the loop carries requests, too."""
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
    pace = Pace()
    async for name, pool in giving_way(list(context.router.pools.items()), pace):
        queue = context.queues.get(name)
        if queue is None:  # it has gone since the turn before
            continue
        replicas = pool.replicas
        steps: dict[str, StepTotal] = {}
        gaps_us: dict[str, float] = {}
        first_bytes: dict[str, tuple[int, ...]] = {}
        async for replica in giving_way(replicas, pace):
            told = _steps(context, replica)
            if told is not None:
                steps[replica.name] = told
            gap_us = context.senses.gap_us(replica.name)
            if gap_us is not None:
                gaps_us[replica.name] = gap_us
            counts = context.tally.first_bytes.get(replica.name)
            if counts is not None:
                first_bytes[replica.name] = tuple(counts)
        totals[name] = PoolTotals(
            requests=requests[name],
            failed=failed[name],
            spills=spills[name],
            rejects=refused[name] + queue.full + queue.late + queue.homeless,
            ttft=tuple(context.tally.ttft(name).counts),
            first_bytes=first_bytes,
            steps=steps,
            gaps_us=gaps_us,
            in_flight=sum([replica.in_flight for replica in replicas]),
            waiting=pool.waiting,
            booked_us=max([replica.booked_us for replica in replicas], default=0.0),
        )
    return totals


def _steps(context: AdminContext, replica: Replica) -> StepTotal | None:
    totals = context.steps.get(replica.name)
    if totals is None:
        return None
    return StepTotal(totals.steps, totals.step_s, totals.forward_s, totals.hook_s, totals.longest_s)
