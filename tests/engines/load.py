"""Load for a real engine: plain streams, and neighbours whose grammars no cache has seen.

The client runs in one event loop of a thread of its own, ahead of everything else on the machine where that is allowed:
what a busy machine does to the client must not be taken for what the engine does to a stream.
"""

import asyncio
import contextlib
import itertools
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.clients.case import MODEL

_T = TypeVar("_T")
_numbers = itertools.count()


def cold_schema() -> dict[str, Any]:
    """About 11 KB of JSON schema that no grammar cache has seen."""
    number = next(_numbers)
    properties = {
        f"field_{number}_{i}": {
            "type": "object",
            "properties": {
                "kind": {"enum": [f"kind {number} {i} {j}" for j in range(4)]},
                "code": {"type": "string", "pattern": f"^[A-Z]{{2,{3 + i % 5}}}-[0-9]{{4}}$"},
                "note": {"type": "string", "maxLength": 40 + i},
            },
            "required": ["kind", "code"],
        }
        for i in range(40)
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def chat(prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        **fields,
    }


def structured(schema: dict[str, Any], tokens: int) -> dict[str, Any]:
    """The body of a chat completion that has to follow `schema`."""
    response_format = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return chat("Fill this in.", tokens, response_format=response_format, ignore_eos=False)


@dataclass(frozen=True, slots=True)
class Gaps:
    """What plain streams saw: milliseconds between tokens; and how many of their neighbours came through a second."""

    p50_ms: float
    p99_ms: float
    neighbours_per_s: float


async def stream(url: str, body: dict[str, Any]) -> list[float]:
    """Moments at which the tokens of a streamed chat completion arrived, in seconds."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    arrivals: list[float] = []
    try:
        while not (line := await reader.readline()).startswith(b"data: [DONE]"):
            assert line, "the stream broke off"
            assert not line.startswith(b'data: {"error"'), line
            if b'"content":' in line and b'"role":"assistant"' not in line:
                arrivals.append(time.monotonic())
    finally:
        writer.close()
    return arrivals


async def plain_streams(url: str, streams: int, tokens: int) -> list[float]:
    """All gaps between tokens of so many plain streams, in milliseconds."""
    bodies = [chat(f"Tell me about sea {i}.", tokens) for i in range(streams)]
    arrivals = await asyncio.gather(*[stream(url, body) for body in bodies])
    return [1e3 * (b - a) for moments in arrivals for a, b in itertools.pairwise(moments)]


async def beside(url: str, streams: int, tokens: int, *neighbours: Callable[[], Awaitable[Any]]) -> Gaps:
    """Plain streams while each neighbour is repeated, one call after the other."""
    over = False
    done = 0

    async def repeat(call: Callable[[], Awaitable[Any]]) -> None:
        nonlocal done
        while not over:
            await call()
            done += not over

    running = [asyncio.create_task(repeat(call)) for call in neighbours]
    start = time.monotonic()
    gaps = await plain_streams(url, streams, tokens)
    per_s = done / (time.monotonic() - start)
    over = True
    await asyncio.gather(*running)
    cuts = statistics.quantiles(gaps, n=100)
    return Gaps(cuts[49], cuts[98], per_s)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run in a thread that comes first on the machine, if it may."""

    def first() -> _T:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        return asyncio.run(work)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(first).result()


def put_first(leader: int) -> None:
    """Let the processes of that session have the processors before other sessions, if this system can do that."""
    with contextlib.suppress(OSError), open(f"/proc/{leader}/autogroup", "w") as file:
        file.write("-15")
