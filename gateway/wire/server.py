"""The client connections of all listening sockets, their limits and deadlines, and how it all comes to an end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any

from gateway.wire.addresscount import AddressCounts
from gateway.wire.certificate import Certificate
from gateway.wire.client import ClientConnection
from gateway.wire.clock import Clock
from gateway.wire.countedclient import CountedConnection
from gateway.wire.counts import WireCounts
from gateway.wire.dateline import DateLine
from gateway.wire.exchange import Exchange, Handler
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.forwarding import Forwarding
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.listening import BACKLOG, UnixFile, bind_tcp, bind_unix
from gateway.wire.lobby import Lobby
from gateway.wire.message import Reply, error_reply
from gateway.wire.minimumrate import MinimumRate
from gateway.wire.openfiles import connections_allowed
from gateway.wire.requesthead import RequestHeads
from gateway.wire.upstream import Upstream

_TURNED_AWAY = 64
"""Connections above the limit that are told why at the same time; the others are just closed."""
_RATES_EVERY_S = 1.0
_LAST_WORDS_S = 2.0
"""Between telling clients that there is no more time, and closing: events that have begun have half of it to end."""


class Server:
    """An HTTP/1.1 server on any number of addresses. Make and use it on its event loop."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        forwarding: Forwarding | None = None,
    ) -> None:
        """forwarding: what replicas are told of the clients; None: all headers pass as they came."""
        self.handler = handler
        self.loop = asyncio.get_running_loop()
        self.clock = Clock(self.loop.time)
        self.date = DateLine(time.time)
        self.counts = WireCounts()
        self.draining = False
        self.connections: set[ClientConnection] = set()
        self.upstreams: set[Upstream] = set()
        """Pools whose idle connections the sweep closes in time."""
        self._turned_away: set[ClientConnection] = set()
        """Those above the limit that linger to read why."""
        self._addresses = AddressCounts(0)
        self._entered: dict[object, str] = {}
        """Connections that count for an address, and for which."""
        self._listeners: list[asyncio.Server | Lobby] = []
        self._by_socket: dict[socket.socket, asyncio.Server | Lobby] = {}
        """Listeners on sockets that others may accept from, too."""
        self._files: list[UnixFile] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._rates_at = 0.0
        self._empty = asyncio.Event()
        self._empty.set()
        self.configure(limits or Limits(), timeouts or Timeouts(), forwarding)

    def configure(self, limits: Limits, timeouts: Timeouts, forwarding: Forwarding | None) -> None:
        """Use these for connections from now on; those that exist keep theirs, but for the counts and rates."""
        self.limits = limits
        self.timeouts = timeouts
        self.forwarding = forwarding
        self.heads = RequestHeads(forwarding)
        self._room = limits.max_connections or connections_allowed()
        """Client connections at most; 0 for no limit."""
        counted = limits.max_requests_per_connection > 0
        self._connection: type[ClientConnection] = CountedConnection if counted else ClientConnection
        self._addresses.limit = limits.max_connections_per_address
        self._bodies: MinimumRate[Exchange] = MinimumRate(limits.body_min_bytes_per_s, timeouts.rate_grace_s)
        self._readers: MinimumRate[ClientConnection] = MinimumRate(limits.write_min_bytes_per_s, timeouts.rate_grace_s)

    async def listen(
        self,
        host: str = "",
        port: int = 0,
        *,
        path: str = "",
        mode: int | None = None,
        sock: socket.socket | None = None,
        reuse_port: bool = False,
        certificate: Certificate | None = None,
        proxy_protocol: bool = False,
    ) -> tuple[str, int]:
        """Listen on a host's port, on a Unix socket at `path`, or on a bound socket, which is then ours.

        mode:           permissions of the Unix socket.
        reuse_port:     other processes listen on the same port, too.
        certificate:    TLS is spoken, with this.
        proxy_protocol: every connection begins with a PROXY header, which is believed.

        Returns the address with the real port; of a Unix socket `unix:PATH` and 0. Raises OSError.
        """
        if sock is not None:
            sockets = [sock]
        elif path:
            sockets = [bind_unix(path, mode)]
            self._files.append(UnixFile(path))
        else:
            sockets = bind_tcp(host, port, reuse_port=reuse_port)
        place = sockets[0].getsockname()
        try:
            for each in sockets:
                await self._serve(each, certificate, proxy_protocol)
        except OSError:
            for each in sockets:
                each.close()
            raise
        if sock is not None:
            self._by_socket[sock] = self._listeners[-1]
        self.look_after()
        return (place[0], place[1]) if isinstance(place, tuple) else (f"unix:{path or place}", 0)

    def look_after(self) -> None:
        """Begin to keep the times of connections; `listen` does, others need it only for connections of their own."""
        if self._sweep is None:
            self._sweep = self.loop.call_later(self.timeouts.sweep_s, self._on_sweep)

    async def _serve(self, listener: socket.socket, certificate: Certificate | None, proxy_protocol: bool) -> None:
        if certificate is not None or proxy_protocol:
            listener.listen(BACKLOG)
            listener.setblocking(False)
            self._listeners.append(Lobby(self, listener, certificate, proxy_protocol))
        elif listener.family == socket.AF_UNIX:
            server = await self.loop.create_unix_server(self.protocol, sock=listener, backlog=BACKLOG)
            self._listeners.append(server)
        else:
            server = await self.loop.create_server(self.protocol, sock=listener, backlog=BACKLOG)
            self._listeners.append(server)

    def leave_to_others(self, sock: socket.socket) -> None:
        """Accept no more from a socket that was given to `listen`; what waits in its queue is for who else has it."""
        self._by_socket.pop(sock).close()

    def reload_certificates(self) -> bool:
        """Take up renewed certificates now. False: one cannot be used and the one before it stays; the log says why."""
        outcomes = [each.reload() for each in self._certificates()]
        return all(outcomes)

    def _certificates(self) -> list[Certificate]:
        lobbies = [each for each in self._listeners if isinstance(each, Lobby)]
        return [lobby.certificate for lobby in lobbies if lobby.certificate is not None]

    async def drain(self) -> None:
        """End in good order: all answers say `connection: close`, after `drain_delay_s` nothing is accepted any more,
        idle connections are closed, and the running exchanges have `drain_s` at most. What runs then is told to."""
        self.draining = True
        if self.timeouts.drain_delay_s > 0:
            await asyncio.sleep(self.timeouts.drain_delay_s)
        self._stop_listening()
        await self._finish(self.timeouts.drain_s)

    async def hand_over(self, idle_s: float) -> None:
        """End in good order while others accept on the same sockets.

        An idle connection may bring one more request within `idle_s`: closed at once, it could be just about to. The
        running exchanges have `hand_over_s`.
        """
        self.draining = True
        self._stop_listening()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle_s):
                await self._empty.wait()
        await self._finish(self.timeouts.hand_over_s)

    async def _finish(self, within_s: float) -> None:
        for connection in list(self.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        if self.connections:
            detail = f"the gateway is going down, and {within_s:g} s were not enough to finish this request"
            for connection in list(self.connections):
                connection.cut(Failure(FailureKind.draining, detail))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._empty.wait()
        await self.close()

    async def close(self) -> None:
        """End everything now."""
        self.draining = True
        if self._sweep is not None:
            self._sweep.cancel()
        self._stop_listening()
        for listener in self._listeners:
            if isinstance(listener, Lobby):
                await listener.clear()
        for connection in list(self.connections):
            connection.abort()
        for upstream in self.upstreams:
            upstream.close()
        await self._empty.wait()

    def _stop_listening(self) -> None:
        for file in self._files:
            file.remove()
        self._files.clear()
        for listener in self._listeners:
            listener.close()

    def protocol(self, announced: str | None = None) -> Any:
        """The asyncio protocol of one connection; `announced` is the client's address if a proxy has told it."""
        return self._connection(self, announced)

    def has_room(self, waiting: int) -> bool:
        """Whether there is room for one more connection beside the `waiting` that are not open yet."""
        limit = self._room
        return not 0 < limit <= len(self.connections) - len(self._turned_away) + waiting

    def enter(self, connection: object, address: str) -> bool:
        """Count a connection for its address, if that has a limit. False: it has too many."""
        if not self._addresses.limit or connection in self._entered:
            return True
        if not self._addresses.enter(address):
            self.counts.address_full += 1
            return False
        self._entered[connection] = address
        return True

    def leave(self, connection: object) -> None:
        """Count it no more."""
        address = self._entered.pop(connection, None)
        if address is not None:
            self._addresses.leave(address)

    def opened(self, connection: ClientConnection) -> None:
        """A client has connected."""
        self.connections.add(connection)
        self.counts.connections += 1
        self._empty.clear()
        limit = self._room
        if 0 < limit < len(self.connections) - len(self._turned_away):
            self.counts.turned_away += 1
            self._turn_away(connection, _TOO_MANY)
        elif self._addresses.limit and not self.enter(connection, connection.address):
            self._turn_away(connection, _TOO_MANY_OF_ONE)

    def _turn_away(self, connection: ClientConnection, reply: Reply) -> None:
        if len(self._turned_away) >= _TURNED_AWAY:
            connection.abort()
            return
        self._turned_away.add(connection)
        connection.turn_away(reply)

    def closed(self, connection: ClientConnection) -> None:
        """A client connection is gone."""
        self.connections.discard(connection)
        self._turned_away.discard(connection)
        self.leave(connection)
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
        if now >= self._rates_at:
            self._rates_at = now + _RATES_EVERY_S
            self._check_rates(now)
        for certificate in self._certificates():
            certificate.look(now)
        for upstream in self.upstreams:
            upstream.sweep(now)

    def _check_rates(self, now: float) -> None:
        """End what is slower than its least rate."""
        if self.limits.body_min_bytes_per_s:
            due = [exchange for each in self.connections if (exchange := each.body_due()) is not None]
            for exchange in self._bodies.check([(each, each.body_size) for each in due], now):
                exchange.client.refuse_slow_body()
        if self.limits.write_min_bytes_per_s:
            readers = [(each, each.bytes_taken()) for each in self.connections if each.write_paused]
            for connection in self._readers.check(readers, now):
                self.counts.slow_readers += 1
                connection.abort()


_TOO_MANY = error_reply(503, "too many connections", "too_many_connections", headers=b"retry-after: 1\r\n")
_TOO_MANY_OF_ONE = error_reply(
    429, "too many connections from this address", "too_many_connections", headers=b"retry-after: 1\r\n"
)
