"""Plain streams beside cold schemas on real SGLang: in one replica, and kept apart by the gateway.

Two engines, two clients and a gateway share the machine's cores here, so this reports figures and judges nothing but
that every stream came through, each from where the rules put it. The proof is on simulators.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.served import gateway
from tests.engines.load import chat, cold_schema, structured
from tests.engines.sglang_server import PACE_S, sglang, slow_down

pytestmark = pytest.mark.timeout(1800)

STREAMS = 4
TOKENS = 80
NEIGHBOURS = 2


@pytest.fixture(scope="module")
def interactive_url(sglang_installed: None) -> Iterator[str]:
    """A second SGLang server, at the pace of the first."""
    with sglang("sglang-interactive") as url:
        slow_down(url, PACE_S)
        yield url


def stream(url: str, body: dict[str, Any]) -> tuple[str, list[float]]:
    """Stream a chat completion; the pool that served it, and the milliseconds between its tokens."""
    arrivals: list[float] = []
    last = ""
    with httpx.stream("POST", f"{url}/v1/chat/completions", json={**body, "stream": True}, timeout=300) as reply:
        for line in reply.iter_lines():
            if '"content":' in line:
                arrivals.append(time.monotonic())
            last = line or last
    assert last == "data: [DONE]"
    return reply.headers["x-steplane-pool"], [1e3 * (b - a) for a, b in itertools.pairwise(arrivals)]


def plain_streams(url: str) -> tuple[set[str], list[float]]:
    """`STREAMS` plain streams at once: the pools that served them, and all gaps between tokens."""
    with ThreadPoolExecutor(STREAMS) as clients:
        done = [clients.submit(stream, url, chat(f"Tell me about sea {i}.", TOKENS)) for i in range(STREAMS)]
        results = [future.result() for future in done]
    return {pool for pool, _ in results}, [gap for _, gaps in results for gap in gaps]


def beside_cold_schemas(url: str) -> tuple[set[str], set[str], list[float]]:
    """The same while `NEIGHBOURS` clients send one cold schema after the other; also the pools of those."""
    over = threading.Event()
    pools: set[str] = set()

    def neighbour() -> None:
        while not over.is_set():
            pools.add(stream(url, structured(cold_schema(), 12))[0])

    with ThreadPoolExecutor(NEIGHBOURS) as clients:
        running = [clients.submit(neighbour) for _ in range(NEIGHBOURS)]
        try:
            plain_pools, gaps = plain_streams(url)
        finally:
            over.set()
        for future in running:
            future.result()
    return plain_pools, pools, gaps


def test_plain_streams_beside_cold_schemas_in_one_replica_and_apart(
    interactive_url: str, sglang_url: str, tmp_path: Path, figures: list[str]
) -> None:
    def report(name: str, gaps: list[float]) -> None:
        cuts = statistics.quantiles(gaps, n=100)
        figures.append(f"gap between plain tokens, {name}: p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms")

    with gateway(tmp_path, {"mixed": {"interactive": interactive_url}}) as mixed:
        plain_streams(mixed.url)  # the first run on an engine compiles and fills caches
        alone, gaps = plain_streams(mixed.url)
        report("alone", gaps)
        plain, cold, gaps = beside_cold_schemas(mixed.url)
        report("cold schemas in the same replica", gaps)
        assert alone == plain == cold == {"mixed"}
    rules = [{"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"}]
    pools = {"interactive": {"interactive": interactive_url}, "grammar": {"grammar": sglang_url}}
    with gateway(tmp_path, pools, rules) as apart:
        plain, cold, gaps = beside_cold_schemas(apart.url)
        report("cold schemas in the grammar pool", gaps)
        assert (plain, cold) == ({"interactive"}, {"grammar"})
