"""What the listening side has counted since its start: plain numbers, read when somebody asks for metrics."""


class WireCounts:
    """Counts of one server.

    connections:      accepted, whatever became of them.
    turned_away:      of those, above the limit of all connections.
    address_full:     of those, above `max_connections_per_address`.
    tls_failures:     handshakes that failed or took too long.
    proxy_failures:   connections without the PROXY header that was due.
    slow_readers:     connections ended because their client took less than the least rate.
    refused:          requests that the wire itself answered with an error, by status.
    bytes_in:         of request bodies.
    bytes_out:        of responses, heads included.
    """

    __slots__ = (
        "address_full",
        "bytes_in",
        "bytes_out",
        "connections",
        "proxy_failures",
        "refused",
        "slow_readers",
        "tls_failures",
        "turned_away",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.turned_away = 0
        self.address_full = 0
        self.tls_failures = 0
        self.proxy_failures = 0
        self.slow_readers = 0
        self.refused: dict[int, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def refuse(self, status: int) -> None:
        """A request was refused with `status`."""
        self.refused[status] = self.refused.get(status, 0) + 1
