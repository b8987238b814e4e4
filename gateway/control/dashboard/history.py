"""What each pool did in each of the last seconds and minutes: bounded rings, and the figures of the last minute.

Pure: is told the totals since the start once a second, with the time, and works out the differences. Reads no clock and
knows nothing of where the totals come from.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """One pool's totals since the start, and what is so now.

    requests, failed: finished, and of those with a status of 5xx. spills: taken by another pool in its place.
    rejects:          not let in, whyever. ttft: times to first byte, counted by bucket.
    steps:            by replica. gap_us: the time between two tokens where no replica tells of its steps, else None.
    in_flight, waiting, booked_us: now; `booked_us` is the largest of a replica.
    """

    requests: int = 0
    failed: int = 0
    spills: int = 0
    rejects: int = 0
    ttft: Sequence[int] = ()
    steps: Mapping[str, StepTotal] = field(default_factory=dict)
    gap_us: float | None = None
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


@dataclass(frozen=True, slots=True)
class Figures:
    """What the last minute of a pool comes to; times in seconds and µs, None where nothing was measured.

    itl: the time between two tokens, taken for the length of a step that is told of. budget_use: mean hook time of a
    step as a share of the budget. over_budget: share of seconds whose mean step was over it.
    """

    per_s: float
    failed: float
    spills: float
    rejects: float
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    itl_p50_us: float | None
    itl_p99_us: float | None
    forward_us: float | None
    hook_us: float | None
    budget_use: float | None


class History:
    """All pools of one gateway."""

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

    def document(self) -> dict[str, Any]:
        """Everything, for a page that has just been opened."""
        return {
            name: {
                "seconds": [point.row() for point in pool.seconds],
                "minutes": [point.row() for point in pool.minutes],
            }
            for name, pool in self._pools.items()
        }


class _Pool:
    __slots__ = ("_last", "_minute", "_steps", "_ttft", "gap_us", "minutes", "seconds")

    def __init__(self, total: PoolTotals) -> None:
        self.seconds: deque[Point] = deque(maxlen=_SECONDS)
        self.minutes: deque[Point] = deque(maxlen=_MINUTES)
        self.gap_us: float | None = None
        self._last = total
        self._minute: list[Point] = []
        self._ttft: deque[list[int]] = deque(maxlen=_SECONDS)
        self._steps: deque[list[tuple[float, float]]] = deque(maxlen=_SECONDS)
        """By second: length of a step in µs, and how many were so long."""

    def note(self, at: float, total: PoolTotals) -> None:
        last, self._last = self._last, total
        self.gap_us = total.gap_us
        self._ttft.append([now - then for now, then in zip(total.ttft, last.ttft, strict=False)])
        spread: list[tuple[float, float]] = []
        steps, step_s, forward_s, hook_s, longest_s = 0, 0.0, 0.0, 0.0, 0.0
        for replica, now in total.steps.items():
            before = last.steps.get(replica, StepTotal())
            ended = now.steps - before.steps
            if ended <= 0:  # none, or its engine was followed by another
                continue
            took_s = now.step_s - before.step_s
            longest_s = max(longest_s, now.longest_s)
            steps, step_s = steps + ended, step_s + took_s
            forward_s += now.forward_s - before.forward_s
            hook_s += now.hook_s - before.hook_s
            spread.append((now.longest_s * 1e6, 1.0))
            if ended > 1:
                spread.append((max(0.0, took_s - now.longest_s) / (ended - 1) * 1e6, ended - 1.0))
        self._steps.append(spread)
        point = Point(
            at,
            _since(total.requests, last.requests),
            _since(total.failed, last.failed),
            _since(total.spills, last.spills),
            _since(total.rejects, last.rejects),
            steps,
            forward_s / steps * 1e6 if steps else None,
            hook_s / steps * 1e6 if steps else None,
            step_s / steps * 1e6 if steps else None,
            longest_s * 1e6 if steps else None,
            total.in_flight,
            total.waiting,
            total.booked_us,
        )
        self.seconds.append(point)
        self._minute.append(point)
        if at - self._minute[0].at >= _MINUTE_S - 1.5:
            self.minutes.append(_mean(self._minute))
            self._minute = []

    def figures(self, bounds_s: Sequence[float], budget_us: float | None) -> Figures:
        seconds = self.seconds
        counts = [sum(column) for column in zip(*self._ttft, strict=False)]
        ttft = _from_buckets(counts, bounds_s)
        steps = sorted([each for second in self._steps for each in second])  # once, for both quantiles
        minute = _mean(seconds)
        return Figures(
            per_s=minute.requests,
            failed=sum([point.failed for point in seconds], 0.0),
            spills=sum([point.spills for point in seconds], 0.0),
            rejects=sum([point.rejects for point in seconds], 0.0),
            ttft_p50_s=quantile(ttft, 0.5),
            ttft_p99_s=quantile(ttft, 0.99),
            itl_p50_us=quantile(steps, 0.5) if steps else self.gap_us,
            itl_p99_us=quantile(steps, 0.99),
            forward_us=minute.forward_us,
            hook_us=minute.hook_us,
            budget_use=None if budget_us is None or minute.hook_us is None else minute.hook_us / budget_us,
        )


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
