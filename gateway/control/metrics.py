"""How Prometheus reads what the gateway counts (tally.py) and the load of its replicas.

Breakers, queues, feeds and the store are trustmetrics.py's.

Names, labels and text are made when `/metrics` is scraped. Labels come from the configuration and from short fixed
lists, never from a request.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from gateway import __version__
from gateway.control.exposition import in_parts
from gateway.control.families import counted
from gateway.control.tally import Histogram, Tally
from gateway.routing.pool import Pool


class Metrics(Collector):
    """The counters of one gateway over its pools, in Prometheus' form."""

    def __init__(self, pools: Mapping[str, Pool], tally: Tally) -> None:
        self._pools = pools
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form, with the state of the replicas."""
        yield from self._traffic()
        yield from self._faults()
        yield from self._state()

    def _traffic(self) -> Iterator[Metric]:
        finished: Counter[tuple[str, str, str]] = Counter()
        spilled: Counter[tuple[str, str]] = Counter()
        for (pool, rule, spilled_from, status_class), count in self._tally.finished_requests().items():
            finished[pool, rule, f"{status_class}xx"] += count
            if spilled_from:
                spilled[spilled_from, pool] += count
        yield counted(
            "steplane_requests",
            "Requests finished, by the rule that matched, the pool that took them and the class of the status sent; "
            "pool is empty where none could take them, status 0xx where the client left before any was sent.",
            ("pool", "rule", "status"),
            finished.items(),
        )
        yield counted(
            "steplane_spilled_requests",
            "Requests that another pool took because their own had no available replica.",
            ("from", "to"),
            spilled.items(),
        )

        tenants = CounterMetricFamily(
            "steplane_tenant_requests",
            "Requests finished, by the tenants that the configuration names; the others are under an empty name.",
            labels=("tenant", "status"),
        )
        for tenant, by_status_class in self._tally.by_tenant.items():
            for status_class, count in enumerate(by_status_class):
                if count:
                    tenants.add_metric((tenant, f"{status_class}xx"), count)
        yield tenants

        ttft = HistogramMetricFamily(
            "steplane_ttft_seconds",
            "Time from a request's arrival to the first byte of its response.",
            labels=("pool",),
        )
        for pool in self._pools:
            histogram = self._tally.ttft(pool)
            ttft.add_metric((pool,), _with_exemplars(histogram), histogram.sum_s)
        yield ttft

    def _faults(self) -> Iterator[Metric]:
        yield counted(
            "steplane_upstream_errors",
            "Failed attempts at replicas and broken responses, by what went wrong.",
            ("pool", "replica", "kind"),
            self._tally.upstream_errors.items(),
        )
        yield counted(
            "steplane_refused_requests",
            "Bodies answered with an error instead of being routed, by error code.",
            ("code",),
            self._tally.refusals.items(),
        )
        yield CounterMetricFamily(
            "steplane_client_disconnects",
            "Clients that left before their response was complete.",
            value=self._tally.clients_left,
        )

    def _state(self) -> Iterator[Metric]:
        for part in in_parts(self._pools):
            in_flight = GaugeMetricFamily(
                "steplane_in_flight_requests", "Requests open on each replica now.", labels=("pool", "replica")
            )
            up = GaugeMetricFamily(
                "steplane_replica_up", "1 while a replica takes requests, else 0.", labels=("pool", "replica")
            )
            for replica in part:
                in_flight.add_metric((replica.pool, replica.name), replica.in_flight)
                up.add_metric((replica.pool, replica.name), float(replica.available))
            yield from (in_flight, up)
        budget = GaugeMetricFamily(
            "steplane_step_budget_seconds", "Hook time that one step may take in a pool.", labels=("pool",)
        )
        for pool in self._pools.values():
            if pool.step_budget_us is not None:
                budget.add_metric((pool.name,), pool.step_budget_us / 1e6)
        yield budget
        info = GaugeMetricFamily("steplane_build_info", "Always 1; the label tells the version.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info


def _with_exemplars(histogram: Histogram) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    """The buckets, each with the newest request of which there is a trace; shown to who asks for OpenMetrics."""
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = list(histogram.cumulative())
    for at, (trace_id, seconds, wall_s) in histogram.exemplars.items():
        bound, count = buckets[at][:2]
        buckets[at] = bound, count, Exemplar({"trace_id": trace_id}, seconds, wall_s)
    return buckets


def create_registry(*collectors: Collector) -> CollectorRegistry:
    """The registry behind `/metrics`: the gateway's own, and the process' CPU, memory and open files."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry
