"""The store that the workers of one supervisor share: without Redis, and lost with the supervisor."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.state.health import Health
from gateway.state.shared import SharedStore
from gateway.state.socketlink import FAILURES, SocketLink, open_link


@dataclass(frozen=True, slots=True)
class SocketPace:
    """As of `RedisOptions`. Nothing gets lost on a socket, so it is looked for rarely."""

    timeout_s: float = 1.0
    lease_timeout_s: float = 0.1
    look_s: float = 5.0
    count_s: float = 2.0
    start_wait_s: float = 1.0
    retry_s: float = 0.05
    retry_max_s: float = 1.0
    capacity: int = 100_000


class SocketStore(SharedStore):
    """A `SharedStore` of all workers that are linked to the same `BooksServer`."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float],
        ttls_s: Mapping[str, float] | None = None,
        pace: SocketPace | None = None,
        random_source: random.Random | None = None,
    ) -> None:
        """`path`: of the server's socket. The rest as for `SharedStore`."""
        pace = pace or SocketPace()
        timeout_s = pace.timeout_s

        async def link() -> SocketLink:
            return await open_link(path, timeout_s)

        health = Health("supervisor", str(path), clock)
        super().__init__(link, FAILURES, health, pace, clock=clock, ttls_s=ttls_s, random_source=random_source)
