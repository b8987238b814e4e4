"""One page of metrics made of those of many processes."""

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar

from gateway.control.admin import REGISTRY, create_admin_app
from gateway.workers.merge import RULES, Merged
from gateway.workers.messages import Family
from gateway.workers.samples import collect, metrics
from tests.unit.control.admins import running_admin


def family(name: str, kind: str, **values: float) -> Family:
    suffix = "_total" if kind == "counter" else ""
    return Family(name, "", kind, [(name + suffix, {"pool": pool}, value) for pool, value in values.items()])


def shown(merged: Merged) -> dict[str, dict[str, float]]:
    return {each.name: {labels["pool"]: value for _, labels, value in each.samples} for each in merged.families()}


def test_counters_and_loads_are_added_up_and_states_are_not() -> None:
    merged = Merged()
    merged.seen(
        1,
        [
            family("steplane_requests", "counter", chat=3, grammar=1),
            family("steplane_in_flight_requests", "gauge", chat=2),
            family("steplane_replica_up", "gauge", chat=0),
            family("steplane_state_connected", "gauge", chat=1),
            family("steplane_steps", "counter", chat=100),
        ],
        beside=2,
    )
    merged.seen(
        2,
        [
            family("steplane_requests", "counter", chat=4),
            family("steplane_in_flight_requests", "gauge", chat=5),
            family("steplane_replica_up", "gauge", chat=1),
            family("steplane_state_connected", "gauge", chat=0),
            family("steplane_steps", "counter", chat=102),
        ],
        beside=2,
    )
    assert shown(merged) == {
        "steplane_requests": {"chat": 7, "grammar": 1},
        "steplane_in_flight_requests": {"chat": 7},
        "steplane_replica_up": {"chat": 1},
        "steplane_state_connected": {"chat": 0},
        # Both have watched the same replica.
        "steplane_steps": {"chat": 101},
    }


def test_what_a_process_had_counted_stays_counted_when_it_is_gone_and_what_it_showed_does_not() -> None:
    merged = Merged()
    merged.seen(
        1, [family("steplane_requests", "counter", chat=3), family("steplane_in_flight_requests", "gauge", chat=2)]
    )
    merged.gone(1)
    assert shown(merged) == {"steplane_requests": {"chat": 3}}
    merged.seen(2, [family("steplane_requests", "counter", chat=1)])
    assert shown(merged) == {"steplane_requests": {"chat": 4}}
    merged.gone(2)
    merged.gone(2)
    merged.gone(3)
    assert shown(merged) == {"steplane_requests": {"chat": 4}}


def test_a_mean_of_workers_of_which_some_are_gone_never_shrinks() -> None:
    merged = Merged()
    merged.seen(1, [family("steplane_steps", "counter", chat=100)], beside=2)
    merged.seen(2, [family("steplane_steps", "counter", chat=100)], beside=2)
    merged.gone(1)
    assert shown(merged) == {"steplane_steps": {"chat": 100}}
    merged.seen(3, [family("steplane_steps", "counter", chat=10)], beside=2)
    merged.seen(2, [family("steplane_steps", "counter", chat=110)], beside=2)
    assert shown(merged) == {"steplane_steps": {"chat": 110}}


class _Page(Collector):
    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> tuple[Metric, ...]:
        return self.families


async def test_a_page_of_one_process_is_the_same_after_the_merge() -> None:
    requests = CounterMetricFamily("requests", "How many.", labels=("pool",))
    requests.add_metric(("chat",), 3)
    times = HistogramMetricFamily("ttft_seconds", "How long.", labels=("pool",))
    times.add_metric(("chat",), [("0.1", 1), ("+Inf", 3)], 0.7)
    up = GaugeMetricFamily("up", "Whether.", 1)
    registry = CollectorRegistry()
    registry.register(_Page(requests, times, up))
    merged = Merged()
    merged.seen(1, await collect(registry))
    again = CollectorRegistry()
    again.register(_Page(*metrics(merged.families())))
    assert generate_latest(again) == generate_latest(registry)


async def test_of_two_traces_the_newer_one_stands_beside_a_bucket() -> None:
    merged = Merged()
    for process, (trace, at) in enumerate([("old", 10.0), ("new", 20.0), ("older", 5.0)], 1):
        ttft = HistogramMetricFamily("steplane_ttft_seconds", "x", labels=("pool",))
        exemplar = Exemplar({"trace_id": trace}, 0.07, at)
        ttft.add_metric(("chat",), [("0.1", 1.0, exemplar), ("+Inf", 2.0)], 0.5)
        registry = CollectorRegistry()
        registry.register(_Page(ttft))
        sent = msgspec.msgpack.encode(await collect(registry))
        merged.seen(process, msgspec.msgpack.decode(sent, type=list[Family]))

    (metric,) = metrics(merged.families())
    assert [(each.labels["le"], each.exemplar) for each in metric.samples if each.exemplar is not None] == [
        ("0.1", Exemplar({"trace_id": "new"}, 0.07, 20.0))
    ]
    assert metric.samples[0].value == 3.0


ADD_UP = {
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "steplane_booked_step_seconds",
    "steplane_client_connections",
    "steplane_in_flight_requests",
    "steplane_queue_requests",
    "steplane_step_budget_seconds",
    "steplane_structured_requests",
    "steplane_upstream_connections",
    "steplane_upstream_waiting_requests",
}
"""Gauges of which each worker has its own part."""


async def test_of_each_gauge_somebody_has_thought_how_those_of_workers_are_put_together() -> None:
    async with running_admin() as admin:
        gauges = {each.name for each in create_admin_app(admin.context)[REGISTRY].collect() if each.type == "gauge"}

    assert gauges - set(RULES) == ADD_UP
