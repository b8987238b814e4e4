"""Families of metrics in Prometheus' form, made of counts by label."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily


def counted(
    name: str, documentation: str, labels: tuple[str, ...], counts: Iterable[tuple[str | tuple[str, ...], float]]
) -> CounterMetricFamily:
    """A counter. counts: the value of its one label, or the values of all, each with its count."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, count in counts:
        family.add_metric((values,) if isinstance(values, str) else values, count)
    return family
