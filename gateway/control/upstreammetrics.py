"""How Prometheus reads the connections to replicas (wire/upstream.py). Made when `/metrics` is scraped."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.control.exposition import in_parts
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.wire.upstream import Upstream

_PLACE = ("pool", "replica")


class UpstreamMetrics(Collector):
    """The connections of one gateway; `upstreams` are by the name of the replica."""

    def __init__(self, pools: Mapping[str, Pool], upstreams: Mapping[str, Upstream]) -> None:
        self._pools = pools
        self._upstreams = upstreams

    def collect(self) -> Iterator[Metric]:
        """All of them, with what was counted since they were first made."""
        for part in in_parts(self._pools):
            yield from self._of(part)

    def _of(self, replicas: Iterable[Replica]) -> Iterator[Metric]:
        connections = GaugeMetricFamily(
            "steplane_upstream_connections",
            "Connections that are open to each replica, by what they do: idle, or busy with a request.",
            labels=(*_PLACE, "state"),
        )
        waiting = GaugeMetricFamily(
            "steplane_upstream_waiting_requests",
            "Requests that wait for a connection, because a replica has as many as it may have.",
            labels=_PLACE,
        )
        limit = GaugeMetricFamily(
            "steplane_upstream_idle_limit_seconds",
            "After how long an unused connection is closed: as configured, or less where a replica closes earlier.",
            labels=_PLACE,
        )
        connects = CounterMetricFamily("steplane_upstream_connects", "Connections that were opened.", labels=_PLACE)
        reused = CounterMetricFamily(
            "steplane_upstream_reused", "Requests that got a kept connection instead of a new one.", labels=_PLACE
        )
        failures = CounterMetricFamily(
            "steplane_upstream_connection_failures",
            "Connections that could not be had, or not be kept, by what went wrong.",
            labels=(*_PLACE, "kind"),
        )
        lookups = CounterMetricFamily(
            "steplane_upstream_dns_lookups", "How often the name of a replica was looked up.", labels=_PLACE
        )
        for replica in replicas:
            place, upstream = (replica.pool, replica.name), self._upstreams.get(replica.name)
            if upstream is None:  # it has just left
                continue
            connections.add_metric((*place, "idle"), upstream.idle)
            connections.add_metric((*place, "busy"), upstream.open - upstream.idle)
            waiting.add_metric(place, upstream.waiting)
            limit.add_metric(place, upstream.idle_s)
            connects.add_metric(place, upstream.connects)
            reused.add_metric(place, upstream.reused)
            for kind, count in failures_of(upstream).items():
                if count:
                    failures.add_metric((*place, kind), count)
            if upstream.lookups:
                lookups.add_metric(place, upstream.lookups)
        yield from (connections, waiting, limit, connects, reused, failures, lookups)


def failures_of(upstream: Upstream) -> dict[str, int]:
    """What went wrong with connections, by kind."""
    return {
        "connect_failed": upstream.connect_failures,
        "connect_timeout": upstream.connect_timeouts,
        "pool_full": upstream.turned_away,
        "stale": upstream.stale,
        "closed_idle": upstream.closed_idle,
        "dns": upstream.failed_lookups,
    }
