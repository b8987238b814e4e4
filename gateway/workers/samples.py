"""The metrics of one process as plain data, to be sent to the supervisor. Merging them is merge.py's."""

import asyncio
from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry
from prometheus_client.samples import Exemplar

from gateway.control.exposition import gather
from gateway.workers.messages import Family


async def collect(registry: CollectorRegistry) -> list[Family]:
    """All that `registry` has now; made in turns on the loop that carries requests."""
    families: list[Family] = []
    for metric in await gather(registry):
        families.append(_family(metric))
        await asyncio.sleep(0)
    return families


def _family(metric: Metric) -> Family:
    return Family(
        metric.name,
        metric.documentation,
        metric.type,
        [(sample.name, sample.labels, float(sample.value)) for sample in metric.samples],
        {
            at: (dict(sample.exemplar.labels), float(sample.exemplar.value), float(sample.exemplar.timestamp or 0))
            for at, sample in enumerate(metric.samples)
            if sample.exemplar is not None
        },
    )


def metrics(families: list[Family]) -> Iterator[Metric]:
    """The reverse, in Prometheus' form."""
    for family in families:
        metric = Metric(family.name, family.documentation, family.type)
        for at, (name, labels, value) in enumerate(family.samples):
            exemplar = Exemplar(*family.exemplars[at]) if at in family.exemplars else None
            metric.add_sample(name, labels, value, exemplar=exemplar)
        yield metric
