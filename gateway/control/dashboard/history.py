"""What pools and replicas did in each of the last seconds, and pools in the last minutes: bounded rings, and figures.

Pure: is told the totals since the start once a second, with the time, and works out the differences. Reads no clock and
knows nothing of where the totals come from.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import Any

_SECONDS = 60
_MINUTES = 60
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class StepTotal:
    """Steps of one replica since the start, in seconds. `longest_s`: the longest of those that were told of last."""

    steps: int = 0
    step_s: float = 0.0
    forward_s: float = 0.0
    hook_s: float = 0.0
    longest_s: float = 0.0

    def since(self, before: "StepTotal") -> "StepTotal | None":
        """What ended since; None where nothing did, or the engine was followed by another."""
        ended = self.steps - before.steps
        if ended <= 0:
            return None
        return StepTotal(
            ended,
            self.step_s - before.step_s,
            self.forward_s - before.forward_s,
            self.hook_s - before.hook_s,
            self.longest_s,
        )


_NONE = StepTotal()


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """One pool's totals since the start, and what is so now.

    requests, failed: finished, and of those with a status of 5xx. spills: taken by another pool in its place.
    rejects:          not let in, whyever. ttft: times to first byte, counted by bucket.
    first_bytes:      those of what replicas answered, by replica. steps: by replica, where it tells of them.
    gaps_us:          by replica, the time between two tokens where it does not.
    in_flight, waiting, booked_us: now; `booked_us` is the largest of a replica.
    """

    requests: int = 0
    failed: int = 0
    spills: int = 0
    rejects: int = 0
    ttft: Sequence[int] = ()
    first_bytes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    steps: Mapping[str, StepTotal] = field(default_factory=dict)
    gaps_us: Mapping[str, float] = field(default_factory=dict)
    in_flight: int = 0
    waiting: int = 0
    booked_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """One pool in one second, or on average in each second of a minute. Times in µs, of a step; None: none ended.

    at:     seconds of the wall clock at its end.
    others: of a step what is neither forward nor hooks.
    """

    at: float
    requests: float = 0.0
    failed: float = 0.0
    spills: float = 0.0
    rejects: float = 0.0
    steps: float = 0.0
    forward_us: float | None = None
    hook_us: float | None = None
    step_us: float | None = None
    longest_us: float | None = None
    in_flight: float = 0.0
    waiting: float = 0.0
    booked_us: float = 0.0

    def row(self) -> list[float | None]:
        """Its values in the order of `COLUMNS`, as short as they may be."""
        return [None if value is None else round(value, 2) for value in self._values()]

    def _values(self) -> list[float | None]:
        return [getattr(self, name) for name in COLUMNS]


COLUMNS: tuple[str, ...] = tuple(each.name for each in fields(Point))


REPLICA_COLUMNS: tuple[str, ...] = ("at", "steps", "forward_us", "hook_us", "longest_us")
"""Of a replica's rows, which there are only for seconds in which steps ended."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """What the last minute came to; times in seconds and µs, None where nothing was measured.

    ttft:        how many times to first byte there were, by bucket.
    itl:         the time between two tokens, taken for the length of a step that is told of.
    budget_use:  mean hook time of a step as a share of the budget.
    over_budget: share of the seconds with steps in which that mean was over it.
    """

    ttft: tuple[int, ...]
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    itl_p50_us: float | None
    itl_p99_us: float | None
    forward_us: float | None
    hook_us: float | None
    budget_use: float | None
    over_budget: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The last minute of a pool: requests a second, and how many failed, were spilled and were rejected."""

    per_s: float
    failed: float
    spills: float
    rejects: float
    latencies: Latencies


class History:
    """All pools of one gateway, and their replicas."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        """`bounds_s`: the upper bounds of the buckets that times to first byte are counted in."""
        self._bounds_s = bounds_s
        self._pools: dict[str, _Pool] = {}

    def note(self, at: float, totals: Mapping[str, PoolTotals]) -> None:
        """A second has passed: `totals` are what there is at `at`, seconds of the wall clock."""
        for name in [name for name in self._pools if name not in totals]:
            del self._pools[name]
        for name, total in totals.items():
            pool = self._pools.get(name)
            if pool is None:
                self._pools[name] = _Pool(total)
            else:
                pool.note(at, total)

    def seconds(self, pool: str) -> list[Point]:
        """The last minute, oldest first."""
        found = self._pools.get(pool)
        return [] if found is None else [*found.seconds]

    def minutes(self, pool: str) -> list[Point]:
        """The last hour, oldest first."""
        found = self._pools.get(pool)
        return [] if found is None else [*found.minutes]

    def figures(self, pool: str, budget_us: float | None) -> Figures | None:
        """The last minute of a pool; None where nothing is known of it yet."""
        found = self._pools.get(pool)
        if found is None or not found.seconds:
            return None
        return found.figures(self._bounds_s, budget_us)

    def latencies(self, pool: str, replica: str, budget_us: float | None) -> Latencies | None:
        """The last minute of a replica; None where nothing is known of it yet."""
        found = self._pools.get(pool)
        known = None if found is None else found.replicas.get(replica)
        return None if known is None else known.latencies(self._bounds_s, budget_us)

    def document(self) -> dict[str, Any]:
        """All pools, for a page that has just been opened."""
        return {
            name: {
                "seconds": [point.row() for point in pool.seconds],
                "minutes": [point.row() for point in pool.minutes],
            }
            for name, pool in self._pools.items()
        }

    def replicas(self, last: int | None = None) -> dict[str, list[list[float]]]:
        """The rows of all replicas, by name; of the last so many seconds only. Those without any are left out."""
        found: dict[str, list[list[float]]] = {}
        for pool in self._pools.values():
            for name, replica in pool.replicas.items():
                rows = replica.rows(last)
                if rows:
                    found[name] = rows
        return found


class _Replica:
    """One replica's last minute. What a second had nothing of takes no room."""

    __slots__ = ("_first_bytes", "_last_bytes", "_last_steps", "_seconds", "gap_us")

    def __init__(self, steps: StepTotal, first_bytes: Sequence[int]) -> None:
        self.gap_us: float | None = None
        self._last_steps = steps
        self._last_bytes = first_bytes
        self._seconds: deque[tuple[float, StepTotal | None]] = deque(maxlen=_SECONDS)
        """When it ended, and what ended in it."""
        self._first_bytes: deque[tuple[int, ...]] = deque(maxlen=_SECONDS)

    def note(self, at: float, steps: StepTotal, first_bytes: Sequence[int], gap_us: float | None) -> StepTotal | None:
        """A second has passed: what has ended in it."""
        ended, self._last_steps = steps.since(self._last_steps), steps
        self._seconds.append((at, ended))
        self._first_bytes.append(_added(first_bytes, self._last_bytes))
        self._last_bytes = first_bytes
        self.gap_us = gap_us
        return ended

    def latencies(self, bounds_s: Sequence[float], budget_us: float | None) -> Latencies:
        seconds = [[ended] for _, ended in self._seconds if ended is not None]
        return _latencies(seconds, self._first_bytes, self.gap_us, bounds_s, budget_us)

    def rows(self, last: int | None) -> list[list[float]]:
        seconds = list(self._seconds)
        return [
            [
                at,
                ended.steps,
                round(ended.forward_s / ended.steps * 1e6, 1),
                round(ended.hook_s / ended.steps * 1e6, 1),
                round(ended.longest_s * 1e6, 1),
            ]
            for at, ended in (seconds if last is None else seconds[-last:])
            if ended is not None
        ]


class _Pool:
    __slots__ = ("_last", "_minute", "_steps", "_ttft", "minutes", "replicas", "seconds")

    def __init__(self, total: PoolTotals) -> None:
        self.seconds: deque[Point] = deque(maxlen=_SECONDS)
        self.minutes: deque[Point] = deque(maxlen=_MINUTES)
        self._last = total
        self._minute: list[Point] = []
        self._ttft: deque[tuple[int, ...]] = deque(maxlen=_SECONDS)
        self._steps: deque[list[StepTotal]] = deque(maxlen=_SECONDS)
        """By second, what ended on each replica."""
        self.replicas = {
            name: _Replica(total.steps.get(name, _NONE), total.first_bytes.get(name, ())) for name in _names(total)
        }

    def note(self, at: float, total: PoolTotals) -> None:
        last, self._last = self._last, total
        self._ttft.append(_added(total.ttft, last.ttft))
        ended = self._of_replicas(at, total)
        self._steps.append(ended)
        steps = sum([each.steps for each in ended])
        point = Point(
            at,
            _since(total.requests, last.requests),
            _since(total.failed, last.failed),
            _since(total.spills, last.spills),
            _since(total.rejects, last.rejects),
            steps,
            sum([each.forward_s for each in ended]) / steps * 1e6 if steps else None,
            sum([each.hook_s for each in ended]) / steps * 1e6 if steps else None,
            sum([each.step_s for each in ended]) / steps * 1e6 if steps else None,
            max([each.longest_s for each in ended]) * 1e6 if steps else None,
            total.in_flight,
            total.waiting,
            total.booked_us,
        )
        self.seconds.append(point)
        self._minute.append(point)
        if at - self._minute[0].at >= _MINUTE_S - 1.5:
            self.minutes.append(_mean(self._minute))
            self._minute = []

    def _of_replicas(self, at: float, total: PoolTotals) -> list[StepTotal]:
        """What has ended on those that there are now; those that are gone are forgotten."""
        known, self.replicas = self.replicas, {}
        found: list[StepTotal] = []
        for name in _names(total):
            replica = self.replicas[name] = known.get(name) or _Replica(_NONE, ())
            ended = replica.note(
                at, total.steps.get(name, _NONE), total.first_bytes.get(name, ()), total.gaps_us.get(name)
            )
            if ended is not None:
                found.append(ended)
        return found

    def figures(self, bounds_s: Sequence[float], budget_us: float | None) -> Figures:
        seconds = self.seconds
        gap_us = max([each.gap_us for each in self.replicas.values() if each.gap_us is not None], default=None)
        return Figures(
            per_s=math.fsum([point.requests for point in seconds]) / len(seconds),
            failed=sum([point.failed for point in seconds], 0.0),
            spills=sum([point.spills for point in seconds], 0.0),
            rejects=sum([point.rejects for point in seconds], 0.0),
            latencies=_latencies([second for second in self._steps if second], self._ttft, gap_us, bounds_s, budget_us),
        )


def _latencies(
    seconds: Sequence[Sequence[StepTotal]],
    first_bytes: Iterable[Sequence[int]],
    gap_us: float | None,
    bounds_s: Sequence[float],
    budget_us: float | None,
) -> Latencies:
    """`seconds`: of those in which steps ended, what ended on each replica. `first_bytes`: by second and bucket."""
    ttft = tuple([sum(column) for column in zip_longest(*first_bytes, fillvalue=0)])
    spread = sorted([each for second in seconds for ended in second for each in _spread(ended)])
    steps = sum([ended.steps for second in seconds for ended in second])
    hook_us = forward_us = None
    if steps:
        hook_us = math.fsum([ended.hook_s for second in seconds for ended in second]) / steps * 1e6
        forward_us = math.fsum([ended.forward_s for second in seconds for ended in second]) / steps * 1e6
    p50_s, p99_s = first_byte_quantiles(ttft, bounds_s)
    return Latencies(
        ttft=ttft,
        ttft_p50_s=p50_s,
        ttft_p99_s=p99_s,
        itl_p50_us=quantile(spread, 0.5) if spread else gap_us,
        itl_p99_us=quantile(spread, 0.99),
        forward_us=forward_us,
        hook_us=hook_us,
        budget_use=None if budget_us is None or hook_us is None else hook_us / budget_us,
        over_budget=share_over([_mean_hook_us(second) for second in seconds], budget_us),
    )


def share_over(hooks_us: Sequence[float], budget_us: float | None) -> float | None:
    """The share of seconds, told by their mean hook time of a step, that were over the budget."""
    if budget_us is None or not hooks_us:
        return None
    return sum([hook_us > budget_us for hook_us in hooks_us]) / len(hooks_us)


def first_byte_quantiles(counts: Sequence[int], bounds_s: Sequence[float]) -> tuple[float | None, float | None]:
    """Median and 99th percentile of times to first byte, in seconds, out of how many there were by bucket."""
    found = _from_buckets(counts, bounds_s)
    return quantile(found, 0.5), quantile(found, 0.99)


def _mean_hook_us(second: Sequence[StepTotal]) -> float:
    return sum([ended.hook_s for ended in second]) / sum([ended.steps for ended in second]) * 1e6


def _spread(ended: StepTotal) -> Iterator[tuple[float, float]]:
    """How long steps were, in µs, and how many: the longest, and the others, which are taken for their mean."""
    yield ended.longest_s * 1e6, 1.0
    if ended.steps > 1:
        yield max(0.0, ended.step_s - ended.longest_s) / (ended.steps - 1) * 1e6, ended.steps - 1.0


def quantile(weighted: Iterable[tuple[float, float]], share: float) -> float | None:
    """The value below which that share of the weight lies; None where there is none."""
    ordered = sorted(weighted)
    wanted = sum([weight for _, weight in ordered], 0.0) * share
    for value, weight in ordered:
        wanted -= weight
        if wanted <= 0.0:
            return value
    return ordered[-1][0] if ordered else None


def _from_buckets(counts: Sequence[int], bounds_s: Sequence[float]) -> list[tuple[float, float]]:
    """Observations at ten places of their bucket, as if they lay there evenly; beyond the last bound at that."""
    found: list[tuple[float, float]] = []
    low = 0.0
    for at, count in enumerate(counts):
        high = bounds_s[at] if at < len(bounds_s) else low
        if count > 0:
            found += [(low + (high - low) * (place + 1) / 10, count / 10) for place in range(10)]
        low = high
    return found


def _added(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """What each count has grown by; nothing takes no room where none has."""
    if now == before:
        return ()
    return tuple([max(0, count - then) for count, then in zip_longest(now, before, fillvalue=0)])


def _names(total: PoolTotals) -> dict[str, None]:
    """The replicas of which something is told."""
    return dict.fromkeys([*total.steps, *total.first_bytes, *total.gaps_us])


def _since(now: int, before: int) -> float:
    """A difference of counters, one of which may have begun again."""
    return float(max(0, now - before))


def _mean(points: Sequence[Point] | deque[Point]) -> Point:
    """Several seconds as one: what they have on average, and their step times weighted by steps."""
    count = max(1, len(points))
    steps = sum([point.steps for point in points], 0.0)

    def average(name: str) -> float:
        return math.fsum([getattr(point, name) for point in points]) / count

    def of_a_step(name: str) -> float | None:
        if not steps:
            return None
        return math.fsum([(getattr(point, name) or 0.0) * point.steps for point in points]) / steps

    return Point(
        points[-1].at,
        average("requests"),
        average("failed"),
        average("spills"),
        average("rejects"),
        steps / count,
        of_a_step("forward_us"),
        of_a_step("hook_us"),
        of_a_step("step_us"),
        max([point.longest_us or 0.0 for point in points]) if steps else None,
        average("in_flight"),
        average("waiting"),
        average("booked_us"),
    )
