"""How Prometheus reads what became of reloads."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.reloads import Outcome, Reloads


class ReloadMetrics(Collector):
    """The reloads of one gateway, in Prometheus' form."""

    def __init__(self, reloads: Reloads) -> None:
        self._reloads = reloads

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        outcomes = CounterMetricFamily(
            "steplane_config_reloads",
            f"Reloads of the configuration, by what became of them: {', '.join(Outcome)}.",
            labels=("outcome",),
        )
        for outcome in Outcome:
            outcomes.add_metric((outcome.value,), self._reloads.outcomes[outcome.value])
        yield outcomes
        yield GaugeMetricFamily(
            "steplane_config_loaded_timestamp_seconds",
            "Time of day since which the configuration is in force.",
            self._reloads.loaded_at,
        )
        last = self._reloads.last
        yield GaugeMetricFamily(
            "steplane_config_last_reload_good",
            "1 where the file could be used when it was read last, else 0; 1 before the first reload.",
            float(last is None or last.outcome.is_good),
        )
        if last is not None:
            yield GaugeMetricFamily(
                "steplane_config_last_reload_timestamp_seconds", "Time of day of the last reload.", last.at
            )
            yield GaugeMetricFamily(
                "steplane_config_last_reload_duration_seconds", "What the last reload took.", last.took_s
            )
