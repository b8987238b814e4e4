"""Opens connections to one server: finds its addresses, races them, and speaks TLS where that is wanted.

Keeps no connection and counts none; how long it may take is its caller's to bound.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.wire.address import Address, Resolver, SystemResolver, interleaved, literal
from gateway.wire.connectrace import connect_first
from gateway.wire.name import Name

if TYPE_CHECKING:
    from gateway.wire.clienttls import ClientTls
    from gateway.wire.connection import UpstreamConnection

_SECOND_CHANCE_S: Final = 0.25
"""How long a failed connect waits to hear whether the name has moved."""


class Dialer:
    """The way to one server: a TCP port of an address or a name, or a Unix socket.

    name: the server's name, whose addresses change; None for an address or a socket.
    """

    __slots__ = ("_dead_after_s", "_fixed", "_last", "_loop", "_path", "_tls", "_tls_name", "name")

    def __init__(
        self,
        host: str,
        port: int,
        *,
        path: str = "",
        tls: ClientTls | None = None,
        resolver: Resolver | None = None,
        dns_refresh_s: float,
        dead_after_s: float,
        on_move: Callable[[], None],
    ) -> None:
        """path: of a Unix socket, used instead of host and port. on_move: the name's addresses have changed."""
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._tls = tls
        self._tls_name = None if tls is None else tls.options.server_name or host
        self._dead_after_s = dead_after_s
        self._fixed = None if path else literal(host, port)
        self._last: Address | None = None
        """The address that accepted last: tried first, so that a server's connections go to one place."""
        self.name: Name | None = None
        if not path and self._fixed is None:
            self.name = Name(host, port, resolver or SystemResolver(), dns_refresh_s, on_move)

    async def dial(self, connection: UpstreamConnection) -> Address | None:
        """Connect `connection`; returns to which address, None for a Unix socket. Raises OSError, UnicodeError."""
        protocol = cast(Any, connection)  # in all but ancestry
        if self._path:
            await self._loop.create_unix_connection(lambda: protocol, self._path)
            return None
        context = None if self._tls is None else await self._tls.refreshed()
        address, opened = await self._connect()
        try:
            _watch(opened, self._dead_after_s)
            await self._loop.create_connection(
                lambda: protocol, sock=opened, ssl=context, server_hostname=None if context is None else self._tls_name
            )
        except BaseException:
            opened.close()
            raise
        self._last = address
        return address

    async def locate(self) -> Address | None:
        """Where it would connect first, without doing so; None for a Unix socket. Raises OSError, UnicodeError."""
        if self.name is None:
            return self._fixed
        return interleaved(await self.name.fresh(), self._last)[0]

    def doubt(self) -> None:
        """It took too long: see whether the name has moved, for those who come next."""
        if self.name is not None:
            self.name.refresh()

    def close(self) -> None:
        """Stop what runs in the background."""
        if self.name is not None:
            self.name.close()

    async def _connect(self) -> tuple[Address, socket.socket]:
        if self._fixed is not None:
            return await connect_first((self._fixed,))
        name = self.name
        assert name is not None
        addresses = await name.fresh()
        try:
            return await connect_first(interleaved(addresses, self._last))
        except OSError:
            moved: Sequence[Address] = await name.doubted(_SECOND_CHANCE_S)
            if not moved:
                raise
            return await connect_first(interleaved(moved, None))


def _watch(connection: socket.socket, dead_after_s: float) -> None:
    """Let the kernel find out that the host is gone: it acknowledges neither what we write nor a keep-alive.

    Without it, a request to a host that has vanished would wait for its first byte as long as a busy engine may take.
    """
    if dead_after_s <= 0:
        return
    every_s = max(1, int(dead_after_s / 4))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", every_s), ("TCP_KEEPINTVL", every_s), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(dead_after_s * 1000))
