"""What the gateway counts, and how Prometheus reads it.

The data plane adds to plain integers, about a microsecond for a whole exchange; names, labels and text are made when
`/metrics` is scraped. Labels come from the configuration and from short fixed lists, never from a request.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from gateway import __version__
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Decision

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class FinishedExchange(Protocol):
    """What is counted of an exchange that is over; times in seconds, 0.0 and status 0 for what did not happen."""

    @property
    def started_at(self) -> float: ...
    @property
    def first_byte_at(self) -> float: ...
    @property
    def status(self) -> int: ...
    @property
    def client_left(self) -> bool: ...


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
        for bound, count in zip((*map(str, TTFT_BUCKETS_S), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class _Tally:
    """What came of one decision: exchanges by class of status (0xx: none was sent), and times to first byte."""

    __slots__ = ("by_status_class", "ttft")

    def __init__(self, ttft: Histogram | None) -> None:
        self.by_status_class = [0] * 10
        self.ttft = ttft


class Metrics(Collector):
    """The counters of one gateway over its pools. The data plane calls the methods; all belong to one event loop."""

    __slots__ = ("_clients_left", "_pools", "_refusals", "_tallies", "_ttft", "_upstream_errors")

    def __init__(self, pools: Mapping[str, Pool]) -> None:
        self._pools = pools
        self._tallies: dict[Decision, _Tally] = {}
        self._ttft = {name: Histogram() for name in pools}
        self._upstream_errors: Counter[tuple[str, str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._clients_left = 0

    def finished(self, exchange: FinishedExchange, decision: Decision | None) -> None:
        """An exchange is over: answered, broken, or left by its client. One that was never routed is not counted."""
        if decision is None:
            return
        tally = self._tallies.get(decision)
        if tally is None:
            pool = decision.pool
            tally = self._tallies[decision] = _Tally(None if pool is None else self._ttft[pool.name])
        tally.by_status_class[exchange.status // 100] += 1
        if exchange.client_left:
            self._clients_left += 1
        if exchange.first_byte_at and tally.ttft is not None:
            tally.ttft.observe(exchange.first_byte_at - exchange.started_at)

    def refused(self, code: str) -> None:
        """A body was answered with an error instead of being routed; `code` is that of the answer."""
        self._refusals[code] += 1

    def upstream_error(self, replica: Replica, kind: str) -> None:
        """An attempt at a replica failed, or its response broke. `kind` is one of a short fixed list."""
        self._upstream_errors[replica.pool, replica.name, kind] += 1

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form, with the state of the replicas."""
        yield from self._traffic()
        yield from self._faults()
        yield from self._state()

    def _traffic(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "steplane_requests",
            "Requests finished, by the rule that matched, the pool that took them and the class of the status sent; "
            "pool is empty where none could take them, status 0xx where the client left before any was sent.",
            labels=("pool", "rule", "status"),
        )
        spills = CounterMetricFamily(
            "steplane_spilled_requests",
            "Requests that another pool took because their own had no available replica.",
            labels=("from", "to"),
        )
        spilled: Counter[tuple[str, str]] = Counter()
        for decision, tally in self._tallies.items():
            pool = decision.pool.name if decision.pool else ""
            for status_class, count in enumerate(tally.by_status_class):
                if count:
                    requests.add_metric((pool, decision.rule, f"{status_class}xx"), count)
            if decision.spilled_from is not None:
                spilled[decision.spilled_from, pool] += sum(tally.by_status_class)
        for labels, count in spilled.items():
            spills.add_metric(labels, count)
        yield requests
        yield spills

        ttft = HistogramMetricFamily(
            "steplane_ttft_seconds",
            "Time from a request's arrival to the first byte of its response.",
            labels=("pool",),
        )
        for pool, histogram in self._ttft.items():
            ttft.add_metric((pool,), histogram.cumulative(), histogram.sum_s)
        yield ttft

    def _faults(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            "steplane_upstream_errors",
            "Failed attempts at replicas and broken responses, by what went wrong.",
            labels=("pool", "replica", "kind"),
        )
        for labels, count in self._upstream_errors.items():
            errors.add_metric(labels, count)
        yield errors

        refusals = CounterMetricFamily(
            "steplane_refused_requests",
            "Bodies answered with an error instead of being routed, by error code.",
            labels=("code",),
        )
        for code, count in self._refusals.items():
            refusals.add_metric((code,), count)
        yield refusals

        yield CounterMetricFamily(
            "steplane_client_disconnects",
            "Clients that left before their response was complete.",
            value=self._clients_left,
        )

    def _state(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily(
            "steplane_in_flight_requests", "Requests open on each replica now.", labels=("pool", "replica")
        )
        up = GaugeMetricFamily(
            "steplane_replica_up", "1 while a replica takes requests, else 0.", labels=("pool", "replica")
        )
        budget = GaugeMetricFamily(
            "steplane_step_budget_seconds", "Hook time that one step may take in a pool.", labels=("pool",)
        )
        for pool in self._pools.values():
            if pool.step_budget_us is not None:
                budget.add_metric((pool.name,), pool.step_budget_us / 1e6)
            for replica in pool.replicas:
                in_flight.add_metric((pool.name, replica.name), replica.in_flight)
                up.add_metric((pool.name, replica.name), float(replica.available))
        yield from (in_flight, up, budget)
        info = GaugeMetricFamily("steplane_build_info", "Always 1; the label tells the version.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info


def create_registry(metrics: Metrics) -> CollectorRegistry:
    """The registry behind `/metrics`: the gateway's own, and the process' CPU, memory and open files."""
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)
    return registry
