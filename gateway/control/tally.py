"""What the data plane counts of each exchange: plain numbers, added in a few tens of nanoseconds.

Names, labels and text are metrics.py's, which reads this when it is scraped.
"""

import time
from bisect import bisect_left
from collections import Counter, deque
from typing import Final

from gateway.routing.replica import Replica
from gateway.routing.router import Decision

_ERRORS_KEPT: Final = 8
"""Of each replica, for people."""

TTFT_BUCKETS_S: Final[list[float]] = [
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
]


class Histogram:
    """Observations in seconds, counted by bucket."""

    __slots__ = ("counts", "exemplars", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(TTFT_BUCKETS_S) + 1)
        self.sum_s = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}
        """By bucket, the newest request of which there is a trace: its id, the seconds, the time of day."""

    def observe(self, seconds: float) -> int:
        """Add one observation; in which bucket. Most fall into one of the first, so they are looked at in turn."""
        at = 0
        for bound in TTFT_BUCKETS_S:
            if seconds <= bound:
                break
            at += 1
        self.counts[at] += 1
        self.sum_s += seconds
        return at

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: each upper bound with the count of all observations up to it."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, TTFT_BUCKETS_S), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class DecisionTally:
    """What came of one decision: exchanges by class of status (0xx: none was sent), and times to first byte."""

    __slots__ = ("by_status_class", "ttft")

    def __init__(self, ttft: Histogram | None) -> None:
        self.by_status_class = [0] * 10
        self.ttft = ttft


class Tally:
    """The counters of one gateway. All methods belong to one event loop."""

    __slots__ = (
        "_past",
        "_ttft",
        "by_decision",
        "by_tenant",
        "clients_left",
        "deadlines_exceeded",
        "evicted",
        "first_bytes",
        "hedges",
        "last_errors",
        "quarantined",
        "refusals",
        "retries",
        "retry_budget_exhausted",
        "shadows",
        "upstream_errors",
    )

    def __init__(self) -> None:
        self.by_decision: dict[Decision, DecisionTally] = {}
        """Of the rules that are in force, and of what still runs by older ones."""
        self._past: Counter[tuple[str, str, str, int]] = Counter()
        self._ttft: dict[str, Histogram] = {}
        self.by_tenant: dict[str, list[int]] = {}
        """Exchanges by class of status, of named tenants and under "" of all others; none where no tenant is named."""
        self.clients_left = 0
        self.refusals: Counter[str] = Counter()
        """By the error code of the answer."""
        self.quarantined: Counter[tuple[str, str]] = Counter()
        """Requests that were not let where the rules said, by that pool and by what came of it: `quarantine` or
        `refused`."""
        self.evicted: Counter[tuple[str, str]] = Counter()
        """Running requests of a signature that tripped, by pool and by what came of it: `rerun`, `ended`, `refused`."""
        self.retries: Counter[tuple[str, str]] = Counter()
        """By the pool of the attempt before, and by the reason (gateway/retry/reason.py)."""
        self.retry_budget_exhausted: Counter[str] = Counter()
        """Retries and hedges that there were not for that reason, by pool."""
        self.hedges: Counter[tuple[str, str]] = Counter()
        """By pool and by what came of it: `sent`, and of those `won`, `lost`, `failed`, `took_over`; `no_replica` and
        `over_share` were not sent."""
        self.deadlines_exceeded: Counter[str] = Counter()
        """By pool."""
        self.shadows: Counter[tuple[str, str]] = Counter()
        """Copies for another pool, by that pool and by what came of them: `2xx`, `4xx`, `5xx`, `timeout`, `failed`;
        `too_many`, `no_room` and `not_allowed` were not sent."""
        self.upstream_errors: Counter[tuple[str, str, str]] = Counter()
        """By pool, replica and kind."""
        self.first_bytes: dict[str, list[int]] = {}
        """Times to first byte by bucket, by the replica that answered."""
        self.last_errors: dict[str, deque[tuple[float, str, str]]] = {}
        """By replica, the oldest first: time of day, kind, and what people are told of it."""

    def ttft(self, pool: str) -> Histogram:
        """Times from a request's arrival to the first byte of its response."""
        histogram = self._ttft.get(pool)
        if histogram is None:
            histogram = self._ttft[pool] = Histogram()
        return histogram

    def exemplar(self, pool: str, ttft_s: float, trace_id: str) -> None:
        """There is a trace of a request with this time to first byte, which is or will be counted."""
        self.ttft(pool).exemplars[bisect_left(TTFT_BUCKETS_S, ttft_s)] = (trace_id, ttft_s, time.time())

    def finished(
        self, decision: Decision, status: int, client_left: bool, ttft_s: float, replica: Replica | None = None
    ) -> None:
        """An exchange is over: answered, broken, or left by its client.

        status:  what was sent, 0 for nothing.
        ttft_s:  seconds to the first byte of its response, negative without one.
        replica: who sent that; None where we did ourselves.
        """
        tally = self.by_decision.get(decision)
        if tally is None:
            pool = decision.pool
            tally = self.by_decision[decision] = DecisionTally(None if pool is None else self.ttft(pool.name))
        tally.by_status_class[status // 100] += 1
        if client_left:
            self.clients_left += 1
        ttft = tally.ttft
        if ttft is not None and ttft_s >= 0.0:
            at = ttft.observe(ttft_s)
            if replica is not None:
                counts = self.first_bytes.get(replica.name)
                if counts is None:
                    if replica.retired:
                        return  # its name is forgotten already
                    counts = self.first_bytes[replica.name] = [0] * (len(TTFT_BUCKETS_S) + 1)
                counts[at] += 1

    def finished_requests(self) -> Counter[tuple[str, str, str, int]]:
        """All that are over, by the pool that took them, the rule, the pool that they spilled from ("": none) and the
        class of their status."""
        counts = self._past.copy()
        for decision, tally in self.by_decision.items():
            pool = "" if decision.pool is None else decision.pool.name
            for status_class, count in enumerate(tally.by_status_class):
                if count:
                    counts[pool, decision.rule, decision.spilled_from or "", status_class] += count
        return counts

    def fold(self) -> None:
        """Other rules are in force: keep the sums of the old ones' decisions instead of each."""
        self._past = self.finished_requests()
        self.by_decision.clear()

    def forget_replica(self, replica: str) -> None:
        """A replica has left: replicas come and go, and their names with them."""
        for labels in [labels for labels in self.upstream_errors if labels[1] == replica]:
            del self.upstream_errors[labels]
        self.first_bytes.pop(replica, None)
        self.last_errors.pop(replica, None)

    def refused(self, code: str) -> None:
        """A body was answered with an error instead of being routed; `code` is that of the answer."""
        self.refusals[code] += 1

    def upstream_error(self, pool: str, replica: str, kind: str, detail: str = "") -> None:
        """An attempt at a replica failed, or its response broke. `kind` is one of a short fixed list."""
        self.upstream_errors[pool, replica, kind] += 1
        self.note_error(replica, kind, detail)

    def note_error(self, replica: str, kind: str, detail: str) -> None:
        """Keep for people what went wrong there; `detail` never quotes a body."""
        errors = self.last_errors.get(replica)
        if errors is None:
            errors = self.last_errors[replica] = deque(maxlen=_ERRORS_KEPT)
        errors.append((time.time(), kind, detail))
