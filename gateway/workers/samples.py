"""The metrics of one process as plain data, to be sent to the supervisor. Merging them is merge.py's."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry

from gateway.workers.messages import Family


def collect(registry: CollectorRegistry) -> list[Family]:
    """All that `registry` has now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, sample.labels, float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def metrics(families: list[Family]) -> Iterator[Metric]:
    """The reverse, in Prometheus' form."""
    for family in families:
        metric = Metric(family.name, family.documentation, family.type)
        for name, labels, value in family.samples:
            metric.add_sample(name, labels, value)
        yield metric
