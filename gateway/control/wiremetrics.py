"""How Prometheus reads what the listening side counts: connections, what was refused there, and bytes."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.wire.counts import WireCounts


class WireMetrics(Collector):
    """The counts of one server, in Prometheus' form."""

    def __init__(self, counts: WireCounts, open_connections: Callable[[], int]) -> None:
        self._counts = counts
        self._open_connections = open_connections

    def collect(self) -> Iterator[Metric]:
        """Everything in Prometheus' form."""
        counts = self._counts
        yield GaugeMetricFamily(
            "steplane_client_connections", "Connections of clients open now.", self._open_connections()
        )
        yield CounterMetricFamily(
            "steplane_client_connections_accepted",
            "Connections of clients accepted, whatever became of them.",
            value=counts.connections,
        )
        ended = CounterMetricFamily(
            "steplane_client_connections_refused",
            "Connections that were not served: above a limit, without the TLS handshake or PROXY header that was due, "
            "or ended because their client took less than the least rate.",
            labels=("reason",),
        )
        for reason, count in (
            ("max_connections", counts.turned_away),
            ("max_connections_per_address", counts.address_full),
            ("tls", counts.tls_failures),
            ("proxy_protocol", counts.proxy_failures),
            ("slow_reader", counts.slow_readers),
        ):
            ended.add_metric((reason,), count)
        yield ended
        refused = CounterMetricFamily(
            "steplane_unreadable_requests",
            "Requests answered with an error before they were whole: malformed, too large or too slow.",
            labels=("status",),
        )
        for status, count in sorted(counts.refused.items()):
            refused.add_metric((str(status),), count)
        yield refused
        yield CounterMetricFamily(
            "steplane_request_body_bytes", "Bytes of request bodies received from clients.", value=counts.bytes_in
        )
        yield CounterMetricFamily(
            "steplane_response_bytes", "Bytes of responses sent to clients, heads included.", value=counts.bytes_out
        )
