"""How Prometheus reads what became of requests that one attempt did not answer: retries, hedges, deadlines, pauses.

Names, labels and text are made when `/metrics` is scraped. Labels are names of the configuration and words of short
fixed lists (tally.py).
"""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.exposition import flags
from gateway.control.families import counted
from gateway.control.tally import Tally
from gateway.routing.pool import Pool


class RetryMetrics(Collector):
    """See the module."""

    def __init__(self, pools: Mapping[str, Pool], tally: Tally) -> None:
        self._pools = pools
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        tally = self._tally
        yield counted(
            "steplane_retries",
            "Further attempts at requests, by the pool and the outcome of the attempt before.",
            ("pool", "reason"),
            tally.retries.items(),
        )
        yield counted(
            "steplane_retry_budget_exhausted",
            "Retries and hedges that there were not because the pool's retry budget was used up.",
            ("pool",),
            tally.retry_budget_exhausted.items(),
        )
        yield counted(
            "steplane_hedges",
            "Second attempts beside a first one that was late, by what came of them: sent, and of those won, lost, "
            "failed and took_over (the first one had failed); over_share and no_replica were not sent.",
            ("pool", "outcome"),
            tally.hedges.items(),
        )
        yield counted(
            "steplane_deadlines_exceeded",
            "Requests that were ended because the time that their route or client gave them was over.",
            ("pool",),
            tally.deadlines_exceeded.items(),
        )
        yield from flags(
            "steplane_replica_resting",
            "1 while a replica gets no requests because its engine said when to come back, else 0.",
            self._pools,
            lambda replica: replica.resting,
        )
