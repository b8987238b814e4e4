"""One engine server behind the gateway, as the choice of a replica sees it.

Owns no connection and does no checking. Whether it may be picked has independent causes: the health monitor says
whether it is up (`set_healthy`), the replica breaker whether it is trusted (`eject`, `try_out`, `readmit`), a person
whether it is to run empty (`drain`, `undrain`), its engine whether it is busy (`rest`), the warm-up whether its caches
are filled first (`warm`). What runs on it is counted by its pool alone. A plain class: compiled, its `__init__` takes
half the time of a dataclass's.
"""

import math
from collections.abc import Callable


class Replica:
    """An engine server; identity is the object itself, so that a set of excluded replicas is cheap.

    name:        what the response header and the metrics call it.
    url:         `http://host:port`, without a trailing slash.
    engine:      `sglang`, `vllm` or `other`.
    pool:        name of the pool that it belongs to.
    available:   may be picked. Derived: up, not draining, not ejected, if on trial, with a trial left, not resting, and
                 not kept for its warm-up.
    resting:     its engine asked for a pause (`paused`), which is all that keeps it from being picked.
    healthy:     its health checks say that it is up.
    draining:    what runs there is finished, and nothing new is sent there. retired: it has left its pool for good.
    warming:     it is kept from requests until its engine has compiled the grammars that are used most.
    ejected:     its breaker is open.
    on_trial:    its breaker is half-open; `trials_left` more requests may be sent to it.
    in_flight:   exchanges that run on it now.
    booked:      how many of them have a step cost; `booked_us` is the sum of those costs.
    structured:  how many of them have a grammar.
    weight:      its share of the load beside others of its pool; above 0. zone: where it stands, "" where not said.
    elsewhere:   requests that its engine has and this gateway did not send, as it last said; 0.0 where it does not.
    cache_usage: share of its KV cache that is in use, as it last said; -1.0 where it does not.
    reserved:    kept free for a big request that waits: no other request with a cost is put on it.
    hooks_us:    hook time of its steps, as its step feed last told, whoever sent the requests; 0.0 where there is none.
    guests:      how many of what runs there are of other pools that had no room; `guests_us` is the least step budget
                 of those pools, which nothing new may exceed while they are there (inf: none of them has one).
    at:          its place in its pool; `bit` is 1 << at. Set by the pool.
    """

    __slots__ = (
        "_on_change",
        "_on_rest",
        "at",
        "available",
        "bit",
        "booked",
        "booked_us",
        "cache_usage",
        "draining",
        "ejected",
        "elsewhere",
        "engine",
        "guests",
        "guests_us",
        "healthy",
        "hooks_us",
        "host",
        "in_flight",
        "name",
        "on_trial",
        "paused",
        "pool",
        "port",
        "reserved",
        "resting",
        "retired",
        "structured",
        "tls",
        "trials_left",
        "url",
        "warming",
        "weight",
        "zone",
    )

    def __init__(
        self,
        name: str,
        url: str,
        host: str,
        port: int,
        tls: bool = False,
        engine: str = "sglang",
        pool: str = "",
        available: bool = False,
        weight: float = 1.0,
        zone: str = "",
    ) -> None:
        """`available`: whether it counts as up before its first health check."""
        self.name = name
        self.url = url
        self.host = host
        self.port = port
        self.tls = tls
        self.engine = engine
        self.pool = pool
        self.weight = weight
        self.zone = zone
        self.elsewhere = 0.0
        self.cache_usage = -1.0
        self.available = self.healthy = available
        self.draining = self.retired = False
        self.paused = self.resting = False
        self.warming = False
        self.ejected = False
        self.on_trial = False
        self.trials_left = 0
        self.in_flight = 0
        self.booked = 0
        self.booked_us = 0.0
        self.structured = 0
        self.reserved = False
        self.hooks_us = 0.0
        self.guests = 0
        self.guests_us = math.inf
        self.at = 0
        self.bit = 1
        self._on_change: Callable[[Replica], None] | None = None
        self._on_rest: Callable[[Replica], None] | None = None

    def __repr__(self) -> str:
        return f"<Replica {self.name} at {self.url}>"

    def watch(self, on_change: Callable[["Replica"], None], on_rest: Callable[["Replica"], None]) -> None:
        """Be told whenever `available` or `resting` has changed.

        For its pool; raises ValueError where it belongs to another one.
        """
        if self._on_change is not None:
            raise ValueError(f"replica {self.name!r} is in a pool already: each pool needs its own Replica")
        self._on_change = on_change
        self._on_rest = on_rest

    def set_healthy(self, healthy: bool) -> None:
        """The health monitor's word."""
        self.healthy = healthy
        self._derive()

    def drain(self) -> None:
        """Send nothing new there; what runs there is finished."""
        self.draining = True
        self._derive()

    def undrain(self) -> None:
        """Send requests there again."""
        self.draining = False
        self._derive()

    def rest(self, paused: bool) -> None:
        """Its engine asked for a pause, or that is over. No fault: what waits for the pool goes on waiting."""
        self.paused = paused
        self._derive()

    def warm(self, warming: bool) -> None:
        """Keep it from requests until it is warmed up, or keep it no longer."""
        self.warming = warming
        self._derive()

    def retire(self) -> None:
        """It leaves its pool and does not come back. For its pool."""
        self.retired = True
        self._derive()

    def eject(self) -> None:
        """The breaker opened: no request goes there."""
        self.ejected, self.on_trial, self.trials_left = True, False, 0
        self._derive()

    def try_out(self, trials: int) -> None:
        """The breaker is half-open: send up to `trials` requests there, then no more until it has decided."""
        self.ejected, self.on_trial, self.trials_left = False, True, trials
        self._derive()

    def readmit(self) -> None:
        """The breaker closed."""
        self.ejected, self.on_trial, self.trials_left = False, False, 0
        self._derive()

    def take_trial(self) -> None:
        """A trial request is on its way there."""
        if self.trials_left > 0:
            self.trials_left -= 1
            self._derive()

    def _derive(self) -> None:
        fit = (
            self.healthy
            and not self.draining
            and not self.retired
            and not self.ejected
            and not self.warming
            and (not self.on_trial or self.trials_left > 0)
        )
        # Told in such an order that a pool whose replicas rest is never taken for one that has none.
        resting = fit and self.paused
        if resting and not self.resting:
            self._rests(True)
        available = fit and not self.paused
        if available is not self.available:
            self.available = available
            if self._on_change is not None:
                self._on_change(self)
        if self.resting and not resting:
            self._rests(False)

    def _rests(self, resting: bool) -> None:
        self.resting = resting
        if self._on_rest is not None:
            self._on_rest(self)
