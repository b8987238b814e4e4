"""Where connections wait that have something to say before HTTP: whose they are (PROXY protocol), or a TLS handshake.

Accepts on one listening socket and hands on what has passed. A task for each connection, but only until then. Whoever
says nothing, or the wrong thing, is closed without a word, as HAProxy does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Final

import structlog

from gateway.wire.proxyheader import MAX_BYTES, ProxyHeaderError, announced, header_end

if TYPE_CHECKING:
    from gateway.wire.certificate import Certificate
    from gateway.wire.server import Server

log = structlog.get_logger("steplane.wire")


class Lobby:
    """One listening socket with its connections that have not passed yet."""

    def __init__(
        self, server: Server, listener: socket.socket, certificate: Certificate | None, proxy_protocol: bool
    ) -> None:
        """certificate: TLS is spoken; proxy_protocol: a PROXY header comes first."""
        self.certificate = certificate
        self._server = server
        self._listener = listener
        self._proxy_protocol = proxy_protocol
        self._waiting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Accept no more; who waits may still pass."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._server.loop.remove_reader(self._listener)
            self._listener.close()

    async def clear(self) -> None:
        """Send away who still waits."""
        for task in self._waiting:
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting)

    def _listen(self) -> None:
        self._pause = None
        self._server.loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, place = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors or memory: asking again at once would not help
                log.error("accept_failed", reason=error.strerror, pause_s=_PAUSE_S)
                self._server.loop.remove_reader(self._listener)
                self._pause = self._server.loop.call_later(_PAUSE_S, self._listen)
                return
            if not self._server.has_room(len(self._waiting)):
                self._server.counts.connections += 1
                self._server.counts.turned_away += 1
                connection.close()
                continue
            connection.setblocking(False)
            task = self._server.loop.create_task(self._greet(connection, place[0] if place else ""))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _greet(self, connection: socket.socket, address: str) -> None:
        """Let a connection say what it must and hand it on, or close it."""
        server = self._server
        handed_on = False
        announcing = self._proxy_protocol
        client: str | None = None
        try:
            if announcing:
                async with asyncio.timeout(server.timeouts.header_s):
                    client = await self._announced(connection)
                announcing = False
                address = client or address
            protocol = server.protocol(client)
            if not server.enter(protocol, address):
                server.counts.connections += 1
                return
            try:
                if self.certificate is None:
                    await server.loop.connect_accepted_socket(lambda: protocol, connection)
                else:
                    await server.loop.connect_accepted_socket(
                        lambda: protocol,
                        connection,
                        ssl=self.certificate.context,
                        ssl_handshake_timeout=server.timeouts.header_s,
                        ssl_shutdown_timeout=server.timeouts.linger_s,
                    )
                handed_on = True
            finally:
                if not handed_on:
                    server.leave(protocol)
        except (ProxyHeaderError, EOFError, OSError) as error:  # TimeoutError and ssl.SSLError are among them
            if announcing:
                server.counts.proxy_failures += 1
            elif self.certificate is not None:
                server.counts.tls_failures += 1
            reason = getattr(error, "reason", None) or str(error) or "too slow"
            log.info("greeting_failed", client=address, of="proxy" if announcing else "tls", reason=reason)
        finally:
            if not handed_on:
                connection.close()

    async def _announced(self, connection: socket.socket) -> str | None:
        """The client's address that the PROXY header names, or None. Takes not a byte of what follows the header."""
        header = b""
        while True:
            await self._readable(connection)
            try:
                data = connection.recv(MAX_BYTES, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                continue
            if not data:
                raise EOFError("closed without a PROXY header")
            end = header_end(header + data)
            header += connection.recv(len(data) if end < 0 else end - len(header))
            if end >= 0:
                return announced(header)

    async def _readable(self, connection: socket.socket) -> None:
        loop = self._server.loop
        came = loop.create_future()
        loop.add_reader(connection, _tell, came)
        try:
            await came
        finally:
            with contextlib.suppress(OSError, ValueError):
                loop.remove_reader(connection)


def _tell(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


_AT_ONCE: Final = 64
_PAUSE_S: Final = 0.5
