"""What an engine's `/metrics` say, for replicas without a step feed: sums over seconds, attributed to nobody.

Owns which series of SGLang 0.5.23 and vLLM 0.32 matter, and the differences between two readings. Only the lines that
matter are looked at: an engine exposes hundreds (0.1 ms for 500 lines, where a full parser needs 10 ms of the loop).
SGLang's grammar compile histogram is read although 0.5.23 declares and never fills it: other versions do.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.feed.reach import Reach
from gateway.feed.wholebody import WholeBody

_WITHIN_S = 4.0
_MOST_BYTES = 4 << 20

_GAUGES = {
    "sglang:num_running_reqs": "running",
    "vllm:num_requests_running": "running",
    "sglang:num_queue_reqs": "waiting",
    "vllm:num_requests_waiting": "waiting",
    "sglang:num_grammar_queue_reqs": "grammar_queue",
}
_MEANS = {
    "sglang:inter_token_latency_seconds": "itl",
    "vllm:inter_token_latency_seconds": "itl",
    "vllm:time_per_output_token_seconds": "itl",
    "sglang:time_to_first_token_seconds": "first_token",
    "vllm:time_to_first_token_seconds": "first_token",
    "sglang:grammar_compilation_time_seconds": "compile",
}
"""Histograms of which the mean over an interval says enough."""
_STAGES = ("sglang:scheduler_stage_seconds_total", "sglang:scheduler_stage_seconds")
_LINE = re.compile(rb"^([a-z]+:[a-z_]+)(?:\{([^\n]*)\})? (\S+)", re.MULTILINE)
_CATEGORY = re.compile(rb'(?:^|,)category="([^"\\]*)"')


@dataclass(frozen=True, slots=True)
class Reading:
    """The series that matter, added up over their labels. `totals` are counters, sum and count of each mean."""

    at_s: float
    gauges: Mapping[str, float]
    totals: Mapping[str, float]
    stages_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What an engine did between two readings, `over_s` seconds apart.

    running, waiting, grammar_queue: requests at the second one.
    itl_us, first_token_ms, compile_ms: means over the interval; None where nothing of the kind happened.
    stages: share of the scheduler's time by stage of its loop; SGLang sleeps in `get_next_batch_to_run` while a grammar
            compiles.
    """

    replica: str
    at_s: float
    over_s: float
    running: int
    waiting: int
    grammar_queue: int
    itl_us: float | None
    first_token_ms: float | None
    compile_ms: float | None
    compiles: int
    stages: Mapping[str, float] = field(default_factory=dict)


def read_metrics(text: bytes, at_s: float) -> Reading | None:
    """The reading in an exposition in Prometheus' text format; None when nothing in it is an engine's."""
    gauges: dict[str, float] = {}
    totals: dict[str, float] = {}
    stages: dict[str, float] = {}
    for match in _LINE.finditer(text):
        name = match[1].decode()
        into, key = gauges, _GAUGES.get(name)
        if key is None:
            family, _, part = name.rpartition("_")
            if part in {"sum", "count"} and family in _MEANS:
                into, key = totals, f"{_MEANS[family]}_{part}"
            elif name in _STAGES:
                category = _CATEGORY.search(match[2] or b"")
                into, key = stages, category[1].decode(errors="replace") if category else "other"
            else:
                continue
        try:
            into[key] = into.get(key, 0.0) + float(match[3])
        except ValueError:
            continue
    return Reading(at_s, gauges, totals, stages) if gauges or totals or stages else None


def between(replica: str, before: Reading, after: Reading) -> EngineMetrics:
    """What happened from one reading to the next. Counters that fell were started anew: all they hold is new."""
    over_s = after.at_s - before.at_s

    def mean(name: str, scale: float) -> float | None:
        count = _grown(before.totals, after.totals, f"{name}_count")
        return _grown(before.totals, after.totals, f"{name}_sum") / count * scale if count > 0 else None

    spent = {stage: _grown(before.stages_s, after.stages_s, stage) for stage in after.stages_s}
    return EngineMetrics(
        replica=replica,
        at_s=after.at_s,
        over_s=over_s,
        running=int(after.gauges.get("running", 0)),
        waiting=int(after.gauges.get("waiting", 0)),
        grammar_queue=int(after.gauges.get("grammar_queue", 0)),
        itl_us=mean("itl", 1e6),
        first_token_ms=mean("first_token", 1e3),
        compile_ms=mean("compile", 1e3),
        compiles=int(_grown(before.totals, after.totals, "compile_count")),
        stages={stage: seconds / over_s for stage, seconds in spent.items()} if over_s > 0 else {},
    )


class Scraper:
    """Reads one replica's metrics when asked to."""

    def __init__(self, replica: str, url: str, reach: Reach | None = None) -> None:
        """`url`: of the engine, without a trailing slash. `reach`: the ways to those that a URL does not lead to."""
        self._replica = replica
        self._metrics = WholeBody("feed", url, "/metrics", _MOST_BYTES, reach)
        self._before: Reading | None = None

    async def scrape(self, at_s: float) -> EngineMetrics | None:
        """What happened since the last call; None the first time and when there is nothing to be read."""
        reading = await self._read(at_s)
        before, self._before = self._before, reading
        return None if reading is None or before is None else between(self._replica, before, reading)

    def forget(self) -> None:
        """Begin anew: nobody has read for a while."""
        self._before = None

    @property
    def answers(self) -> bool:
        """Whether the last call found an engine's metrics."""
        return self._before is not None

    async def _read(self, at_s: float) -> Reading | None:
        try:
            async with asyncio.timeout(_WITHIN_S):
                body = await self._metrics.read()
        except (OSError, TimeoutError):
            return None
        return None if body is None else read_metrics(body, at_s)


def _grown(before: Mapping[str, float], after: Mapping[str, float], key: str) -> float:
    value, earlier = after.get(key, 0.0), before.get(key, 0.0)
    return value if value < earlier else value - earlier
