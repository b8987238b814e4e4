"""How Prometheus reads whether the members of pools are known."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class DiscoveryMetrics(Collector):
    """The discoveries of one gateway, in Prometheus' form."""

    def __init__(self, errors: Callable[[], Mapping[str, str | None]]) -> None:
        """`errors`: by pool, why its members are not known at the moment, None where they are."""
        self._errors = errors

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        failing = GaugeMetricFamily(
            "steplane_discovery_failing",
            "1 while it is not known who is of a pool, so that the last known members stay, else 0.",
            labels=("pool",),
        )
        for pool, error in self._errors().items():
            failing.add_metric((pool,), float(error is not None))
        yield failing
