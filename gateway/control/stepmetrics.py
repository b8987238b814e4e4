"""How Prometheus reads the steps of pools: how long they take, and how far off predictions are.

Made when `/metrics` is scraped, from what step feeds and streams have told.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.context import AdminContext
from gateway.control.exposition import in_parts
from gateway.routing.replica import Replica


class StepMetrics(Collector):
    """The steps of one gateway's pools, in Prometheus' form."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        step = HistogramMetricFamily(
            "steplane_step_duration_seconds",
            "What steps took, which is the time between two tokens of a stream; by the means that step feeds tell.",
            labels=("pool",),
        )
        forward = HistogramMetricFamily(
            "steplane_forward_duration_seconds", "What the model took in a step; by the same means.", labels=("pool",)
        )
        hooks = HistogramMetricFamily(
            "steplane_hook_duration_seconds",
            "What hooks of requests took in a step; by the same means.",
            labels=("pool",),
        )
        for pool, times in self._context.pool_steps.times.items():
            for family, histogram in ((step, times.step), (forward, times.forward), (hooks, times.hooks)):
                family.add_metric((pool,), histogram.cumulative(), histogram.total)
        yield from (step, forward, hooks)

        errors = HistogramMetricFamily(
            "steplane_prediction_ratio",
            "What a step of a costly request took, divided by what was predicted of it; once for about a second of it.",
            labels=("pool",),
        )
        for pool, ratios in self._context.pool_steps.errors.items():
            errors.add_metric((pool,), ratios.cumulative(), ratios.total)
        yield errors
        for part in in_parts(self._context.router.pools):
            yield self._gaps(part)

    def _gaps(self, replicas: Iterable[Replica]) -> Metric:
        gaps = GaugeMetricFamily(
            "steplane_itl_median_seconds",
            "Median of the latest gaps between chunks of streams that were looked at, where there is no step feed.",
            labels=("pool", "replica"),
        )
        for replica in replicas:
            gap_us = self._context.senses.gap_us(replica.name)
            if gap_us is not None:
                gaps.add_metric((replica.pool, replica.name), gap_us / 1e6)
        return gaps
