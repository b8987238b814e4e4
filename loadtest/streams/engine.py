"""Replicas whose streams say nothing but a comment now and then; they note when a stream is closed behind them.

Comments carry the moment of their sending (CLOCK_MONOTONIC, ns), so that whoever reads one knows how old it is.
"""

import asyncio
import re
import time
from typing import cast

COMMENT = re.compile(rb": keep-alive (\d+)\n\n")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_STREAM = re.compile(rb'"user":\s*"stream-(\d+)"')


class Engines:
    """Replicas on ports of several loopback addresses.

    left_at: when the connection of a stream was gone (seconds of time.monotonic), by the number its client gave it.
    aborted: requests that were dropped by their id.
    """

    def __init__(self) -> None:
        self.addresses: list[tuple[str, int]] = []
        self.open: dict[int, _Connection] = {}
        self.left_at: dict[int, float] = {}
        self.aborted = 0
        self._servers: list[asyncio.Server] = []

    async def start(self, count: int) -> None:
        """Listen on 127.0.0.2 and so on: there are not ports enough for many streams from one address to another."""
        loop = asyncio.get_running_loop()
        for at in range(count):
            server = await loop.create_server(lambda: _Connection(self), f"127.0.0.{2 + at}", 0, backlog=4096)
            self._servers.append(server)
            self.addresses.append(server.sockets[0].getsockname()[:2])

    def stop(self) -> None:
        for server in self._servers:
            server.close()

    async def comment(self, over_s: float) -> None:
        """One comment on each stream, spread evenly over so many seconds."""
        streams = list(self.open.values())
        began = time.monotonic()
        for at, stream in enumerate(streams):
            wait = began + over_s * at / len(streams) - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            stream.comment()


class _Connection(asyncio.Protocol):
    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._transport: asyncio.Transport
        self._received = b""
        self._number: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if self._number is not None:
            self._engines.left_at[self._number] = time.monotonic()
            self._engines.open.pop(self._number, None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        if not end or (length is not None and len(body) < int(length[1])):
            return
        self._received = b""
        stream = _STREAM.search(body)
        if stream is None:
            self._engines.aborted += head.startswith(b"POST /abort_request")
            self._transport.write(_FINE)
            return
        self._number = int(stream[1])
        self._engines.open[self._number] = self
        self._transport.write(_HEAD)
        self.comment()

    def comment(self) -> None:
        text = b": keep-alive %d\n\n" % time.monotonic_ns()
        self._transport.write(b"%x\r\n%b\r\n" % (len(text), text))
