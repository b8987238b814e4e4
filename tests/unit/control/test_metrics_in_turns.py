"""The page that Prometheus reads is the library's own, though it is made piece by piece."""

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from gateway.control.exposition import in_parts, page
from gateway.control.metrics import Metrics
from gateway.control.tally import Tally
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica

REPLICAS = 333
ACCEPTS = ["", "text/plain; version=1.0.0", "application/openmetrics-text; version=1.0.0"]


def pool(name: str, replicas: int) -> Pool:
    return Pool(
        name,
        tuple(Replica(f"{name}-{at}", f"http://{name}:{at + 1}", name, at + 1, pool=name) for at in range(replicas)),
    )


class _Large(Collector):
    """A histogram with an exemplar beyond the first piece, and a family that has no samples."""

    def collect(self) -> Iterator[Metric]:
        times = HistogramMetricFamily("times_seconds", "With \\ and\na new line.", labels=("of",))
        for of in range(100):
            exemplar = Exemplar({"trace_id": f"{of:032x}"}, 0.05, 1.5)
            times.add_metric((f'"{of}"\n',), [("0.1", 1.0, exemplar), ("1.0", 2.0), ("+Inf", 3.0)], 1.7)
        yield times
        yield GaugeMetricFamily("nothing", "Of nobody.", labels=("of",))


class _Whole(Collector):
    """What a collector gives in parts, joined by hand."""

    def __init__(self, parts: Collector) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for part in self._parts.collect():
            if part.name in families:
                families[part.name].samples += part.samples
            else:
                families[part.name] = part
        return iter(families.values())


def registry(*collectors: Collector) -> CollectorRegistry:
    made = CollectorRegistry()
    for collector in collectors:
        made.register(collector)
    return made


@pytest.mark.parametrize("accept", ACCEPTS)
async def test_a_page_in_pieces_is_the_page_at_once(accept: str) -> None:
    pools = {"chat": pool("chat", REPLICAS), "none": pool("none", 0), "grammar": pool("grammar", 1)}
    metrics = Metrics(pools, Tally())

    body, content_type = await page(registry(_Large(), metrics), accept)

    encode, expected_type = choose_encoder(accept)
    assert content_type == expected_type
    assert body.splitlines() == encode(registry(_Large(), _Whole(metrics))).splitlines()
    assert body.count(b"\nsteplane_in_flight_requests{") == REPLICAS + 1
    assert body.count(b"# TYPE steplane_in_flight_requests ") == 1


async def test_requests_run_while_a_page_is_made() -> None:
    made = asyncio.create_task(page(registry(Metrics({"chat": pool("chat", 1000)}, Tally())), ""))
    turns = 0
    while not made.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 2 * 1000 / 50  # replicas are counted, and lines are written, some at a time


def test_a_replica_that_leaves_meanwhile_is_left_out() -> None:
    pools = {"chat": pool("chat", 60)}
    parts = in_parts(pools)
    first = next(parts)
    leaving = pools["chat"].replicas[55]
    pools["chat"].remove(leaving)

    names = [replica.name for part in (first, *parts) for replica in part]
    assert len(names) == 59
    assert leaving.name not in names


def test_without_replicas_there_is_one_part() -> None:
    assert list(in_parts({})) == [[]]
