"""How Prometheus reads the warm-ups of replicas that came up. Made when `/metrics` is scraped."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.exposition import flags
from gateway.control.families import counted
from gateway.control.warmuptally import WarmUpTally
from gateway.routing.pool import Pool


class WarmUpMetrics(Collector):
    """Of one gateway."""

    def __init__(self, pools: Mapping[str, Pool], tally: WarmUpTally) -> None:
        self._pools = pools
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        yield counted(
            "steplane_warmups",
            "Replicas that came up and were warmed up, by what came of it: done; timeout; serving, where the replica "
            "took requests before the end, because no other did; gone, where it went down or away.",
            ("pool", "outcome"),
            self._tally.outcomes.items(),
        )
        yield counted(
            "steplane_warmup_grammars",
            "Grammars that replicas were given to compile, by what came of it: ok; refused by the engine; broken, "
            "where it broke off; failed.",
            ("pool", "outcome"),
            self._tally.grammars.items(),
        )
        seconds = HistogramMetricFamily(
            "steplane_warmup_duration_seconds", "How long warm-ups took, by the pool of the replica.", labels=("pool",)
        )
        for pool, histogram in self._tally.seconds.items():
            seconds.add_metric((pool,), histogram.cumulative(), histogram.total)
        yield seconds
        yield from flags(
            "steplane_replica_warming",
            "1 while a replica gets no requests because it is being warmed up, else 0.",
            self._pools,
            lambda replica: replica.warming,
        )
