"""Listening sockets, the set of client connections, their deadlines, and how it all comes to an end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from gateway.wire.client import ClientConnection
from gateway.wire.clock import Clock
from gateway.wire.exchange import Handler
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.message import error_reply
from gateway.wire.requesthead import RequestHeads
from gateway.wire.upstream import Upstream

_BACKLOG = 4096
_TURNED_AWAY = 64
"""Connections above the limit that are told why at the same time; the others are just closed."""


class Server:
    """An HTTP/1.1 server on any number of addresses. Make and use it on its event loop."""

    def __init__(self, handler: Handler, limits: Limits | None = None, timeouts: Timeouts | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.timeouts = timeouts or Timeouts()
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(self.loop.time)
        self.heads = RequestHeads()
        self.draining = False
        self.connections: set[ClientConnection] = set()
        self.upstreams: set[Upstream] = set()
        """Pools whose idle connections the sweep closes in time."""
        self._turned_away: set[ClientConnection] = set()
        """Those above the limit that linger to read why."""
        self._listeners: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on an address and return it with the real port. Raises OSError if it cannot be had."""
        listener = await self.loop.create_server(
            cast(Any, lambda: ClientConnection(self)), host, port, backlog=_BACKLOG, reuse_address=True
        )
        self._listeners.append(listener)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self.timeouts.sweep_s, self._on_sweep)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def drain(self) -> None:
        """Stop accepting, close idle connections and wait for the running exchanges, `drain_s` at most."""
        self.draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.drain()
        try:
            async with asyncio.timeout(self.timeouts.drain_s):
                await self._empty.wait()
        except TimeoutError:
            pass
        await self.close()

    async def close(self) -> None:
        """End everything now."""
        self.draining = True
        if self._sweep is not None:
            self._sweep.cancel()
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.abort()
        for upstream in self.upstreams:
            upstream.close()
        await self._empty.wait()

    def opened(self, connection: ClientConnection) -> None:
        """A client has connected."""
        self.connections.add(connection)
        self._empty.clear()
        limit = self.limits.max_connections
        if 0 < limit < len(self.connections) - len(self._turned_away):
            if len(self._turned_away) >= _TURNED_AWAY:
                connection.abort()
                return
            self._turned_away.add(connection)
            connection.turn_away(
                error_reply(503, "too many connections", "too_many_connections", headers=b"retry-after: 1\r\n")
            )

    def closed(self, connection: ClientConnection) -> None:
        """A client connection is gone."""
        self.connections.discard(connection)
        self._turned_away.discard(connection)
        if not self.connections:
            self._empty.set()

    def _on_sweep(self) -> None:
        self._sweep = self.loop.call_later(self.timeouts.sweep_s, self._on_sweep)
        now = self.clock.read()
        for connection in [c for c in self.connections if c.deadline < now or c.reading_paused]:
            if connection.deadline < now:
                connection.expire()
            elif connection.has_left():
                connection.abort()
        for upstream in self.upstreams:
            upstream.sweep(now)
