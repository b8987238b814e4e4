"""How much, and how long, the wire tolerates."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, rates in bytes per second. 0: no limit, but for the first two."""

    max_header_bytes: int = 64 * 1024
    max_body_bytes: int = 64 * 1024 * 1024
    max_connections: int = 0
    """Client connections, all together; where 0, as many as there are open files for (openfiles.py)."""
    max_connections_per_address: int = 0
    """Of one IPv4 address or one IPv6 /64."""
    max_requests_per_connection: int = 0
    body_min_bytes_per_s: int = 0
    """A request body that comes more slowly is refused."""
    write_min_bytes_per_s: int = 0
    """A client that takes a response more slowly, while there is something to take, is cut off."""
    write_high_water_bytes: int = 256 * 1024
    """Unsent bytes towards one peer above which the other peer is no longer read."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. Checked by one sweep every `sweep_s`, so a limit is met that much late at most."""

    header_s: float = 10.0
    """From the first byte of a request to the end of its header."""
    body_s: float = 60.0
    """Between two reads of a request body."""
    rate_grace_s: float = 20.0
    """How long a body or a client may be slower than the least rate."""
    connect_s: float = 2.0
    first_byte_s: float = 600.0
    """From the request written to the first byte of the response."""
    stream_idle_s: float = 300.0
    """Between two reads of a response, or with a client that takes nothing."""
    keepalive_s: float = 75.0
    """A client connection without a request."""
    upstream_idle_s: float = 4.0
    """A pooled upstream connection without an exchange; below the 5 s after which uvicorn closes."""
    drain_delay_s: float = 0.0
    """Between the first word of a drain and the end of accepting: whoever sends clients here hears of it meanwhile."""
    drain_s: float = 30.0
    hand_over_s: float = 600.0
    """As `drain_s`, while others take the clients: then there is no hurry."""
    linger_s: float = 5.0
    """How long the rest of a refused request is read and dropped so that its client can read the answer."""
    sweep_s: float = 0.25
