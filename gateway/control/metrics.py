"""What the gateway counts, and how Prometheus reads it.

The data plane adds to plain integers (0.1 to 0.4 µs a call); names, labels and text are made when `/metrics` is
scraped. Labels come from the configuration and from short fixed lists, never from a request.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.routing.router import Router

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
NO_POOL = ""
"""Pool label of requests that were answered before a pool was chosen."""


class Histogram:
    """Observations in seconds, counted by bucket."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(TTFT_BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Add one observation."""
        self.counts[bisect_left(TTFT_BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: each upper bound with the count of all observations up to it."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*TTFT_BUCKETS_S, float("inf")), self.counts, strict=True):
            total += count
            buckets.append((str(bound) if bound != float("inf") else "+Inf", total))
        return buckets


class Metrics:
    """The counters of one gateway. The data plane calls the methods; all belong to one event loop."""

    __slots__ = ("_rejections", "_requests", "_spills", "_ttft", "_upstream_errors", "clients_left")

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._upstream_errors: Counter[tuple[str, str, str]] = Counter()
        self._spills: Counter[tuple[str, str]] = Counter()
        self._rejections: Counter[str] = Counter()
        self._ttft: dict[str, Histogram] = {}
        self.clients_left = 0
        """Clients that were gone before their response was complete; add to it directly."""

    def request_finished(self, pool: str, rule: str, status: int) -> None:
        """An exchange is over. `status` is what the client got, 0 when it left before; `pool` may be NO_POOL."""
        self._requests[pool, rule, status // 100] += 1

    def first_byte(self, pool: str, seconds: float) -> None:
        """The first byte of a reply went out, `seconds` after its request came in."""
        histogram = self._ttft.get(pool)
        if histogram is None:
            histogram = self._ttft[pool] = Histogram()
        histogram.observe(seconds)

    def upstream_failed(self, pool: str, replica: str, kind: str) -> None:
        """An attempt at a replica failed. `kind` is one of a short fixed list."""
        self._upstream_errors[pool, replica, kind] += 1

    def spilled(self, source: str, target: str) -> None:
        """A request went to `target` because `source` had no available replica."""
        self._spills[source, target] += 1

    def rejected(self, code: str) -> None:
        """A request was answered by the gateway itself; `code` is the error code of its body."""
        self._rejections[code] += 1

    def families(self) -> Iterator[Metric]:
        """The counters in Prometheus' form."""
        requests = CounterMetricFamily(
            "steplane_requests",
            "Requests finished, by the pool and rule that took them and the class of the client's status; "
            "0xx: the client left before a status was sent.",
            labels=("pool", "rule", "status"),
        )
        for (pool, rule, status_class), count in sorted(self._requests.items()):
            requests.add_metric((pool, rule, f"{status_class}xx"), count)
        yield requests

        errors = CounterMetricFamily(
            "steplane_upstream_errors",
            "Failed attempts at replicas, by what went wrong.",
            labels=("pool", "replica", "kind"),
        )
        for error_labels, count in sorted(self._upstream_errors.items()):
            errors.add_metric(error_labels, count)
        yield errors

        spills = CounterMetricFamily(
            "steplane_spilled_requests",
            "Requests that another pool took because their own had no available replica.",
            labels=("from", "to"),
        )
        for spill_labels, count in sorted(self._spills.items()):
            spills.add_metric(spill_labels, count)
        yield spills

        rejections = CounterMetricFamily(
            "steplane_rejected_requests", "Requests that the gateway answered itself, by error code.", labels=("code",)
        )
        for code, count in sorted(self._rejections.items()):
            rejections.add_metric((code,), count)
        yield rejections

        yield CounterMetricFamily(
            "steplane_client_disconnects",
            "Clients that left before their response was complete.",
            value=self.clients_left,
        )

        ttft = HistogramMetricFamily(
            "steplane_ttft_seconds",
            "Time from a request's arrival to the first byte of its response.",
            labels=("pool",),
        )
        for pool, histogram in sorted(self._ttft.items()):
            ttft.add_metric((pool,), histogram.cumulative(), histogram.sum_s)
        yield ttft


class _GatewayCollector(Collector):
    def __init__(self, metrics: Metrics, router: Router) -> None:
        self._metrics = metrics
        self._router = router

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.families()
        in_flight = GaugeMetricFamily(
            "steplane_in_flight_requests", "Requests open on each replica now.", labels=("pool", "replica")
        )
        up = GaugeMetricFamily(
            "steplane_replica_up", "1 while a replica takes requests, else 0.", labels=("pool", "replica")
        )
        budget = GaugeMetricFamily(
            "steplane_step_budget_seconds", "Hook time that one step may take in a pool.", labels=("pool",)
        )
        for pool in self._router.pools.values():
            if pool.step_budget_us is not None:
                budget.add_metric((pool.name,), pool.step_budget_us / 1e6)
            for replica in pool.replicas:
                in_flight.add_metric((pool.name, replica.name), replica.in_flight)
                up.add_metric((pool.name, replica.name), float(replica.available))
        yield in_flight
        yield up
        yield budget
        info = GaugeMetricFamily("steplane_build_info", "Always 1; the label tells the version.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info


def create_registry(metrics: Metrics, router: Router) -> CollectorRegistry:
    """The registry behind `/metrics`: the counters, the replicas' state, and the process' own CPU, memory and files."""
    registry = CollectorRegistry()
    registry.register(_GatewayCollector(metrics, router))
    ProcessCollector(registry=registry)
    return registry
