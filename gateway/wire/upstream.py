"""One upstream server and its pool of connections: takes, makes, releases and expires them. Reads no response."""

from __future__ import annotations

import asyncio
import math
import ssl
from typing import TYPE_CHECKING, Any, cast

from gateway.wire.connection import UpstreamConnection
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.responsehead import ResponseHeads

if TYPE_CHECKING:
    from gateway.wire.exchange import Exchange
    from gateway.wire.limits import Timeouts


class Upstream:
    """One server address and its idle connections, the most recently used on top."""

    def __init__(
        self, host: str, port: int, timeouts: Timeouts, *, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.name = name or f"{host}:{port}"
        self.heads = ResponseHeads()
        self._tls = tls
        self._timeouts = timeouts
        self._idle: dict[UpstreamConnection, float] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.last_read_at = -math.inf
        """The loop's time when a response last made progress."""

    @property
    def idle(self) -> int:
        """Pooled connections without an exchange."""
        return len(self._idle)

    def take(self, now: float) -> UpstreamConnection | None:
        """An idle connection that is not past its time, or None. `now`: the loop's time."""
        while self._idle:
            connection, since = self._idle.popitem()
            if now - since < self._timeouts.upstream_idle_s and not connection.is_closing():
                return connection
            connection.drop()
        return None

    def release(self, connection: UpstreamConnection, now: float) -> None:
        """A connection is done with its exchange and may serve another."""
        if self._closed:
            connection.drop()
        else:
            self._idle[connection] = now

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is closed."""
        self._idle.pop(connection, None)

    def connect(self, exchange: Exchange) -> asyncio.Task[None]:
        """Open a connection for `exchange`, which is told of the outcome unless it cancels the returned task."""
        return self._loop.create_task(self._connect(exchange))

    def sweep(self, now: float) -> None:
        """Close connections that idled too long; the oldest are at the bottom."""
        for connection, since in list(self._idle.items()):
            if now - since < self._timeouts.upstream_idle_s:
                return
            del self._idle[connection]
            connection.drop()

    def close(self) -> None:
        """Close idle connections; those in use close when their exchange is done."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Close the pooled connections: what has happened to one of them may have happened to all."""
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.drop()

    async def _connect(self, exchange: Exchange) -> None:
        connection = UpstreamConnection(self)
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                protocol = cast(Any, connection)
                await self._loop.create_connection(lambda: protocol, self.host, self.port, ssl=self._tls)
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except TimeoutError:
            connection.abandon()
            detail = f"{self.name} did not accept a connection within {self._timeouts.connect_s:g} s"
            exchange.connect_failed(Failure(FailureKind.connect_timeout, detail))
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is no name that could be looked up
            connection.abandon()
            detail = f"no connection to {self.name}: {getattr(error, 'strerror', None) or error}"
            exchange.connect_failed(Failure(FailureKind.connect_failed, detail))
        else:
            if connection.is_closing():
                detail = f"{self.name} closed the connection as soon as it was made"
                exchange.connect_failed(Failure(FailureKind.connect_failed, detail))
            else:
                exchange.attach(connection)
