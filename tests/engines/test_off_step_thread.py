"""The cure inside one replica: plain streams beside cold schemas, stock SGLang against ours, interleaved in one run.

Times on a shared machine mean little by themselves, so everything is a ratio to the same streams alone, a moment
before, and the median of several rounds counts. The floor is what no cure inside an engine can beat: the neighbours'
tokens from grammars that are ready, and a busy loop outside the engine in place of the compiles.
"""

import asyncio
import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.load import Gaps, beside, cold_schema, put_first, run, stream, structured
from tests.engines.plugin import sglang_with_plugin
from tests.engines.sglang_server import sglang_process

pytestmark = pytest.mark.timeout(1800)

STREAMS, NEIGHBOURS = 8, 4
TOKENS, NEIGHBOURS_TOKENS = 150, 12
ROUNDS, MOST_ROUNDS = 3, 10
# A grammar takes about 140 MB.
CACHE_MIB = 1024


@dataclass(slots=True)
class Seen:
    """Rounds of one case: ratios to the streams alone, and completions of neighbours."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)

    def add(self, alone: Gaps, disturbed: Gaps) -> None:
        self.p50.append(disturbed.p50_ms / alone.p50_ms)
        self.p99.append(disturbed.p99_ms / alone.p99_ms)
        self.per_s.append(disturbed.neighbours_per_s)

    def medians(self) -> tuple[float, float, float]:
        return statistics.median(self.p50), statistics.median(self.p99), statistics.median(self.per_s)

    def __str__(self) -> str:
        p50, p99, per_s = self.medians()
        return f"p50 x {p50:.2f}, p99 x {p99:.2f}, {per_s:.2f} neighbours/s, {len(self.p50)} rounds"


@pytest.fixture(scope="module")
def urls(sglang_installed: None, plugin_site: Path) -> Iterator[tuple[str, str]]:
    """Stock SGLang and ours, in its default event loop."""
    variables = {"STEPLANE_GRAMMAR_CACHE_MIB": str(CACHE_MIB)}
    with (
        sglang_process("sglang-stock", overlap=True) as (stock, stock_process),
        sglang_with_plugin("sglang-ours", plugin_site, "steplane-xgrammar", overlap=True, variables=variables) as (
            ours,
            process,
        ),
    ):
        put_first(stock_process.pid)
        put_first(process.pid)
        yield stock, ours


@contextmanager
def busy_loop() -> Iterator[None]:
    """Another process that takes all that it gets of one processor, and is as nice as a compile."""
    command = [sys.executable, "-c", "import os; os.nice(5)\nwhile True: pass"]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


def cold(url: str) -> Gaps:
    async def neighbour() -> None:
        await stream(url, structured(cold_schema(), NEIGHBOURS_TOKENS))

    return run(beside(url, STREAMS, TOKENS, *[neighbour] * NEIGHBOURS))


def ready(url: str, per_s: float, schema: dict[str, Any]) -> Gaps:
    """Neighbours that come about as often as `per_s` says, with one grammar that is compiled already."""
    pause_s = max(0.0, NEIGHBOURS / per_s - 0.3)
    waits = itertools.count()

    async def neighbour() -> None:
        first = next(waits)
        # The first ones spread out over one pause.
        await asyncio.sleep(pause_s * first / NEIGHBOURS if first < NEIGHBOURS else pause_s)
        await stream(url, structured(schema, NEIGHBOURS_TOKENS))

    with busy_loop():
        return run(beside(url, STREAMS, TOKENS, *[neighbour] * NEIGHBOURS))


def alone(url: str) -> Gaps:
    return run(beside(url, STREAMS, TOKENS))


def forget_grammars(url: str) -> None:
    """Stock SGLang keeps every grammar for ever, at 140 MB each."""
    httpx.post(f"{url}/flush_cache", timeout=60).raise_for_status()


def test_cold_schemas_do_not_hold_up_plain_streams_any_more(urls: tuple[str, str], figures: list[str]) -> None:
    stock_url, ours_url = urls
    stock, ours, floor = Seen(), Seen(), Seen()
    warm = cold_schema()
    for url in urls:  # the first run on an engine compiles and fills caches
        alone(url)
        run(stream(url, structured(warm, NEIGHBOURS_TOKENS)))
    for number in range(MOST_ROUNDS):
        stock.add(alone(stock_url), cold(stock_url))
        forget_grammars(stock_url)
        ours.add(alone(ours_url), cold(ours_url))
        floor.add(alone(ours_url), ready(ours_url, max(0.5, ours.per_s[-1]), warm))
        if number + 1 >= ROUNDS and not shortcomings(stock, ours, floor):
            break
    figures.append(f"{STREAMS} plain streams beside {NEIGHBOURS} cold schemas on SGLang, stock: {stock}")
    figures.append(f"{STREAMS} plain streams beside {NEIGHBOURS} cold schemas on SGLang, ours:  {ours}")
    figures.append(f"{STREAMS} plain streams beside {NEIGHBOURS} warm schemas and a busy loop:  {floor}")
    assert not shortcomings(stock, ours, floor)


def shortcomings(stock: Seen, ours: Seen, floor: Seen) -> list[str]:
    """What of the goal is not reached. The issue's figures hold for a machine of one's own; see the printed ones."""
    stock_p50, stock_p99, stock_per_s = stock.medians()
    p50, p99, per_s = ours.medians()
    floor_p50, floor_p99, _ = floor.medians()
    goals = {
        "half of stock's p99 at most": p99 <= stock_p99 / 2,
        "p50 not above stock's": p50 <= stock_p50,
        "p50 within a fifth of the floor": p50 <= 1.2 * max(1.0, floor_p50),
        "p99 within half of the floor": p99 <= 1.5 * max(1.0, floor_p99),
        "80 % of stock's neighbours come through": per_s >= 0.8 * stock_per_s,
    }
    return [goal for goal, reached in goals.items() if not reached]
