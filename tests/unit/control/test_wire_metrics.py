from prometheus_client import CollectorRegistry, generate_latest

from gateway.control.wiremetrics import WireMetrics
from gateway.wire.counts import WireCounts


def test_counts_of_the_listening_side_are_told() -> None:
    counts = WireCounts()
    counts.connections = 7
    counts.turned_away, counts.address_full, counts.tls_failures, counts.proxy_failures, counts.slow_readers = range(
        1, 6
    )
    counts.bytes_in, counts.bytes_out = 100, 200
    for status in (400, 408, 400):
        counts.refuse(status)
    registry = CollectorRegistry()
    registry.register(WireMetrics(counts, lambda: 3))

    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    assert lines == [
        "steplane_client_connections 3.0",
        "steplane_client_connections_accepted_total 7.0",
        'steplane_client_connections_refused_total{reason="max_connections"} 1.0',
        'steplane_client_connections_refused_total{reason="max_connections_per_address"} 2.0',
        'steplane_client_connections_refused_total{reason="tls"} 3.0',
        'steplane_client_connections_refused_total{reason="proxy_protocol"} 4.0',
        'steplane_client_connections_refused_total{reason="slow_reader"} 5.0',
        'steplane_unreadable_requests_total{status="400"} 2.0',
        'steplane_unreadable_requests_total{status="408"} 1.0',
        "steplane_request_body_bytes_total 100.0",
        "steplane_response_bytes_total 200.0",
    ]
