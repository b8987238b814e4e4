"""Head-of-line blocking, seen and cured: the same two replicas as one mixed pool and as two pools.

Inter-token latency (ITL) of plain streams is compared with and without pathological grammar streams beside them, all
in one run and in turns, so that what the machine does otherwise is in both.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import aiohttp
import pytest

from tests.clients.case import MODEL
from tests.clients.served import Served, gateway, simulator

BOMB = r"""root ::= ch+ ([ \n] ch+)*
ch ::= [0-9a-zA-Z.,!?]"""
"""Words and separators: about 2.4 ms for every token of every sequence, on the step thread."""

PLAIN_STREAMS = 8
TOKENS = 80
ROUNDS = 3
ATTEMPTS = 4


@pytest.fixture(scope="module")
def replicas() -> Iterator[dict[str, str]]:
    """Two replicas with the forward pass of a small model."""
    flags = ("--forward-base-us", "5000", "--forward-per-seq-us", "20")
    with simulator("first", *flags) as first, simulator("second", *flags) as second:
        yield {"first": first, "second": second}


@pytest.fixture(scope="module")
def mixed(replicas: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Both replicas in one pool: what people run today."""
    with gateway(tmp_path_factory.mktemp("mixed"), {"mixed": replicas}) as served:
        yield served


@pytest.fixture(scope="module")
def segregated(replicas: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One replica for plain requests, one for raw grammars."""
    pools = {"interactive": {"first": replicas["first"]}, "quarantine": {"second": replicas["second"]}}
    rules = [
        {"name": "raw-grammar", "when": {"grammar": "ebnf"}, "pool": "quarantine"},
        {"name": "default", "pool": "interactive"},
    ]
    with gateway(tmp_path_factory.mktemp("segregated"), pools, rules) as served:
        yield served


async def test_pathological_grammars_hurt_plain_streams_in_a_mixed_pool_and_not_in_their_own(
    mixed: Served, segregated: Served
) -> None:
    seen: list[tuple[float, float]] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        # What else the machine does can hide the difference, but not make it: a measurement may be repeated.
        for _ in range(ATTEMPTS):
            hurt, unhurt = await _ratios(session, mixed, segregated)
            seen.append((hurt, unhurt))
            if hurt > 2.5 and unhurt < 1.5 and hurt > 2 * unhurt:
                return
    pytest.fail(f"p99 ITL with pathological streams, as a multiple of it without, (mixed, segregated): {seen}")


async def _ratios(session: aiohttp.ClientSession, mixed: Served, segregated: Served) -> tuple[float, float]:
    """p99 ITL of plain streams beside pathological ones ÷ alone, in both arrangements; medians of some turns."""
    ratios: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for served, found in zip((mixed, segregated), ratios, strict=True):
            alone = _p99(await _plain_gaps(session, served))
            async with _bombs(session, served):
                beside = _p99(await _plain_gaps(session, served))
            found.append(beside / alone)
    return median(ratios[0]), median(ratios[1])


async def _plain_gaps(session: aiohttp.ClientSession, served: Served) -> list[float]:
    """Seconds between the tokens of plain streams that run together."""
    bodies = [_body(f"Tell me a story, the {index}th.", max_tokens=TOKENS) for index in range(PLAIN_STREAMS)]
    streams = await asyncio.gather(*(_gaps(session, served, body) for body in bodies))
    return [gap for stream in streams for gap in stream]


async def _gaps(session: aiohttp.ClientSession, served: Served, body: dict[str, Any]) -> list[float]:
    async with session.post(f"{served.url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        stamps = [time.perf_counter() async for _ in response.content.iter_any()]
    return [later - earlier for earlier, later in pairwise(stamps[1:])]


class _bombs:  # noqa: N801 (reads as a verb at its use)
    """Two requests of six pathological sequences each, running for as long as the block does."""

    def __init__(self, session: aiohttp.ClientSession, served: Served) -> None:
        self._session = session
        self._served = served
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        started = [asyncio.Event(), asyncio.Event()]
        self._tasks = [asyncio.create_task(self._run(event)) for event in started]
        for event in started:
            await asyncio.wait_for(event.wait(), 60)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results

    async def _run(self, started: asyncio.Event) -> None:
        body = _body("Words, please.", max_tokens=4000, n=6, ebnf=BOMB)
        async with self._session.post(f"{self._served.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            async for _ in response.content.iter_any():
                started.set()
        pytest.fail("a pathological stream ended before the plain ones did")


def _body(prompt: str, **parameters: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "messages": messages, "stream": True, "temperature": 0, **parameters}


def _p99(gaps: list[float]) -> float:
    return sorted(gaps)[int(len(gaps) * 0.99)]
