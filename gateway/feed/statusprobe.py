"""Asks a server for one path and reads the status of its answer: what a health check needs, and nothing else.

Every replica is asked every second, so a thousand of them leave no room for a whole HTTP client: this takes a fifth of
what one would.
"""

from __future__ import annotations

import asyncio
import re
from typing import cast

from gateway.feed.plainget import PlainGet
from gateway.feed.reach import Reach

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")
_LONGEST_LINE = 256
_LONGEST_ANSWER = 1 << 16
"""The rest of an answer is read and thrown away, so that the server can end it; not more than this."""


class NoStatusError(Exception):
    """What came back is no answer of HTTP/1.1."""


class StatusProbe:
    """Asks one server again and again. `get` is not to be called again while it is under way."""

    __slots__ = ("_get", "_last", "path")

    def __init__(self, url: str, path: str, reach: Reach | None = None) -> None:
        """`url`: of the server, without a path. `reach`: the ways to servers that a plain URL does not lead to."""
        self.path = path
        self._get = PlainGet("health", url, path, reach)
        self._last: _Answer | None = None

    async def get(self) -> int:
        """The status of the answer. Raises OSError, and NoStatusError for what is none. Bound it in time."""
        if self._last is not None:
            self._last.give_up()
        answer = self._last = _Answer(asyncio.get_running_loop(), self._get.request)
        await self._get.send(answer)
        try:
            return await answer.status
        except asyncio.CancelledError:
            answer.give_up()
            raise

    def close(self) -> None:
        """Let go of a connection that the server has not closed yet."""
        if self._last is not None:
            self._last.give_up()
            self._last = None


class _Answer(asyncio.Protocol):
    """One connection: it tells the status as soon as it is known, and stays until the server has ended its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request: bytes) -> None:
        self.status: asyncio.Future[int] = loop.create_future()
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._start = b""
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._size += len(data)
        if self._size > _LONGEST_ANSWER:
            self._transport.abort()
        if self.status.done():
            return
        self._start += data[:_LONGEST_LINE]
        found = _STATUS.match(self._start)
        if found is not None:
            self.status.set_result(int(found[1]))
        elif len(self._start) >= 13:
            self._fail(NoStatusError(f"answered with something that is no HTTP/1.1: {self._start[:20]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("closed the connection without an answer"))

    def give_up(self) -> None:
        """Nobody wants to know any more."""
        self.status.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if not self.status.done():
            self.status.set_exception(error)
            assert self._transport is not None
            self._transport.abort()
