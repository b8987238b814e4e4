"""Prometheus' page, made in turns on the loop that carries requests: of a large fleet it has megabytes.

Collectors give what there is of each replica in parts, families of one name that have some replicas each; here they
are joined. Between two parts, and between two pieces of text, the loop goes on, and the fleet may change.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from gateway.routing.pool import Pool
from gateway.routing.replica import Replica

_REPLICAS_IN_ONE_TURN = 50
_LINES_IN_ONE_TURN = 200
_END = b"# EOF\n"
"""Of a page in the format of OpenMetrics."""


def in_parts(pools: Mapping[str, Pool]) -> Iterator[list[Replica]]:
    """The replicas of all pools, some at a time, but for those that leave meanwhile; at least one, though empty."""
    replicas = [replica for pool in pools.values() for replica in pool.replicas]
    for at in range(0, max(1, len(replicas)), _REPLICAS_IN_ONE_TURN):
        yield [replica for replica in replicas[at : at + _REPLICAS_IN_ONE_TURN] if not replica.retired]


def flags(
    name: str, documentation: str, pools: Mapping[str, Pool], is_set: Callable[[Replica], bool]
) -> Iterator[GaugeMetricFamily]:
    """A gauge of 0 or 1 for each replica of all pools, in parts."""
    for part in in_parts(pools):
        family = GaugeMetricFamily(name, documentation, labels=("pool", "replica"))
        for replica in part:
            family.add_metric((replica.pool, replica.name), float(is_set(replica)))
        yield family


async def gather(registry: CollectorRegistry) -> list[Metric]:
    """All that `registry` has now, each family whole."""
    families: dict[str, Metric] = {}
    for part in registry.collect():
        family = families.setdefault(part.name, part)
        if family is not part:
            family.samples.extend(part.samples)
        await asyncio.sleep(0)
    return list(families.values())


async def page(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All that `registry` has now, and its content type: what a client likes best by its header `accept`."""
    encode, content_type = choose_encoder(accept)
    pieces: list[bytes] = []
    for family in await gather(registry):
        samples = family.samples
        for at in range(0, max(1, len(samples)), _LINES_IN_ONE_TURN):
            family.samples = samples[at : at + _LINES_IN_ONE_TURN]
            lines = encode(_Alone(family)).removesuffix(_END)
            pieces.append(_without_head(lines) if at else lines)
            await asyncio.sleep(0)
    if content_type.startswith("application/openmetrics-text"):
        pieces.append(_END)
    return b"".join(pieces), content_type


class _Alone(Collector):
    """One family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _without_head(lines: bytes) -> bytes:
    """Without the lines on a family's name and type, which its first piece has."""
    while lines.startswith(b"#"):
        lines = lines[lines.index(b"\n") + 1 :]
    return lines
