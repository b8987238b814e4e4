"""How one replica's connections are kept: how many, for how long, and who may wait for one. Numbers only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Counts and seconds; 0 means "no limit" and None "as `Timeouts` says".

    max_connections:             open at the same time, those being opened included.
    max_waiting:                 exchanges that may wait for a connection while all are in use; 0: none may.
    wait_s:                      the longest wait for one, checked by the sweep.
    min_idle:                    kept open and unused, so that a request need not wait for a handshake.
    max_idle:                    unused ones that are kept; more are closed when their exchange is done.
    idle_s:                      an unused one is closed then; a server that closes earlier teaches us a shorter time.
    max_requests_per_connection: it is closed after so many.
    max_connection_age_s:        it is closed after the first exchange that ends later.
    dns_refresh_s:               a name is looked up again when its addresses are older.
    dead_after_s:                a host that acknowledges, or takes, nothing for so long is gone: the kernel sees to it.
    """

    max_connections: int = 0
    max_waiting: int = 1000
    wait_s: float = 2.0
    min_idle: int = 0
    max_idle: int = 0
    idle_s: float | None = None
    max_requests_per_connection: int = 0
    max_connection_age_s: float = 0.0
    dns_refresh_s: float = 30.0
    dead_after_s: float = 60.0
