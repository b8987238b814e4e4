"""Clients that open a stream each and read what comes, until they leave all at once."""

import asyncio
import itertools
import json
import time
from typing import cast

from loadtest.streams.engine import COMMENT

_AT_ONCE = 256
"""Streams that are being opened."""
_PER_ADDRESS = 20_000
"""Of the ports of one loopback address."""
_OPEN_WITHIN_S = 60.0


class Clients:
    """`delays_ms`: how old comments were when they came. `broken`: streams that ended before their clients left."""

    def __init__(self, port: int) -> None:
        self.delays_ms: list[float] = []
        self.broken = 0
        self._port = port
        self._streams: dict[int, _Stream] = {}
        self._numbers = itertools.count()

    async def open(self, count: int) -> None:
        """Open so many more, and return when each has got its first comment. Raises TimeoutError."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> None:
            async with gate, asyncio.timeout(_OPEN_WITHIN_S):
                stream = _Stream(self, number)
                address = f"127.0.1.{1 + number // _PER_ADDRESS}"
                await asyncio.get_running_loop().create_connection(
                    lambda: stream, "127.0.0.1", self._port, local_addr=(address, 0)
                )
                await stream.begun
                self._streams[number] = stream

        await asyncio.gather(*(one(number) for number in itertools.islice(self._numbers, count)))

    def leave(self, count: int | None = None) -> dict[int, float]:
        """Close the first `count` streams, or all; when each was closed (time.monotonic), by its number."""
        numbers = list(self._streams)[:count]
        left = {}
        for number in numbers:
            stream = self._streams.pop(number)
            left[number] = time.monotonic()
            stream.leave()
        return left


class _Stream(asyncio.Protocol):
    def __init__(self, clients: Clients, number: int) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clients = clients
        self._number = number
        self._transport: asyncio.Transport
        self._answered = False
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        body = json.dumps(
            {
                "model": "bench",
                "stream": True,
                "user": f"stream-{self._number}",
                "messages": [{"role": "user", "content": f"think long about {self._number}"}],
            }
        ).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self._answered:
            self._answered = True
            if not data.startswith(b"HTTP/1.1 200"):
                self.begun.set_exception(ConnectionError(f"instead of a stream came {data[:200]!r}"))
        for sent in COMMENT.findall(data):
            if not self.begun.done():
                self.begun.set_result(None)
            else:
                self._clients.delays_ms.append((now - int(sent)) / 1e6)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._leaving:
            self._clients.broken += 1
        if not self.begun.done():
            self.begun.set_exception(exc or ConnectionResetError("the stream ended before it began"))

    def leave(self) -> None:
        self._leaving = True
        self._transport.abort()
