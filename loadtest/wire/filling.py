"""Fills a gateway's cost book: one request of each of many cost signatures, and a step feed that says what each cost.

Owns a replica that answers at once and its step feed, both in a thread of their own, and the clients that ask it. Knows
of the gateway its port, and of requests that a model's name makes a signature.
"""

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Self, cast

from aiohttp import web

MODELS = "fill-*"
"""What the models of these requests are called."""
_CLIENTS = 32
_REPORT_S = 0.25
_SETTLE_S = 2.0
_READ_WITHIN_S = 60.0
_RID = re.compile(rb'"rid":\s*"([^"]+)"')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class FillingError(Exception):
    """The gateway did not take what it was to be filled with."""


class Filler:
    """`replica_port` and `feed_port` on 127.0.0.1 are open while it is used as a context manager."""

    def __init__(self) -> None:
        self.replica_port = 0
        self.feed_port = 0
        self._seen: list[str] = []
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self._replica: asyncio.Server | None = None
        self._feed: web.AppRunner | None = None
        self._read = asyncio.Event()

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def fill(self, port: int, count: int) -> None:
        """Sends `count` requests, no two of one signature, and waits until the feed has told of them.

        Raises FillingError.
        """
        asyncio.run_coroutine_threadsafe(self._fill(port, count), self._loop).result()

    async def _start(self) -> None:
        self._replica = await self._loop.create_server(lambda: _Replica(self._seen), "127.0.0.1", 0)
        self.replica_port = self._replica.sockets[0].getsockname()[1]
        app = web.Application()
        app.router.add_get("/steps", self._steps)
        self._feed = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._feed.setup()
        site = web.TCPSite(self._feed, "127.0.0.1", 0)
        await site.start()
        self.feed_port = self._feed.addresses[0][1]

    async def _stop(self) -> None:
        assert self._feed is not None
        assert self._replica is not None
        await self._feed.cleanup()
        self._replica.close()
        await self._replica.wait_closed()

    async def _steps(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        await response.prepare(request)
        self._read.set()
        with contextlib.suppress(ConnectionError):  # the gateway has gone
            async for record in self._records():
                await response.write(json.dumps(record).encode() + b"\n")
        return response

    async def _records(self) -> AsyncIterator[dict[str, object]]:
        yield {"event": "hello", "engine": "sglang", "version": "0", "rank": 0, "pid": 1, "boot": "b", "next_seq": 1}
        while True:
            await asyncio.sleep(_REPORT_S)
            seen, self._seen[:] = self._seen[:], []
            yield {"event": "alive", "next_seq": 1, "step_runs_s": 0.0}
            if seen:
                yield _rollup(seen)

    async def _fill(self, port: int, count: int) -> None:
        numbers = iter(range(count))
        try:
            await asyncio.wait_for(self._read.wait(), _READ_WITHIN_S)
        except TimeoutError:
            raise FillingError("the gateway does not read the step feed that was to fill its cost book") from None
        await asyncio.gather(*(_ask(port, numbers) for _ in range(_CLIENTS)))
        await asyncio.sleep(_SETTLE_S)


class _Replica(asyncio.Protocol):
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or (length is not None and len(body) < int(length[1])):
            return
        self._received = b""
        rid = _RID.search(body)
        if rid is not None:
            self._seen.append(rid[1].decode())
        self._transport.write(_REPLY)


def _rollup(rids: list[str]) -> dict[str, object]:
    share = {"steps": 1, "sum_us": 40.0, "max_us": 40.0, "kinds": {"grammar_fill": 40.0}}
    hook_us = 40.0 * len(rids)
    return {
        "event": "rollup",
        "after": 0,
        "at": time.time(),
        "steps": len(rids),
        "starved": 0,
        "step_us": 10_000.0 * len(rids),
        "step_max_us": 10_000.0,
        "forward_us": 9_000.0 * len(rids),
        "hook_us": hook_us,
        "sequences": len(rids),
        "requests": dict.fromkeys(rids, share),
    }


async def _ask(port: int, numbers: Iterator[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for number in numbers:
            body = json.dumps(
                {
                    "model": f"{MODELS[:-1]}{number}",
                    "messages": [{"role": "user", "content": "hi"}],
                    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}},
                }
            ).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            writer.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise FillingError(f"a request to fill the cost book was answered with {answer[:200]!r}")
            await reader.readexactly(2)
    finally:
        writer.close()
