"""A client connection that ends after so many requests, where the configuration says so.

A class of its own, so that connections without such a limit need not ask at each request whether there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.wire.client import ClientConnection

if TYPE_CHECKING:
    from gateway.wire.exchange import Exchange
    from gateway.wire.server import Server


class CountedConnection(ClientConnection):
    """One client connection of at most `limits.max_requests_per_connection` requests; the last answer says so."""

    __slots__ = ("_left",)

    def __init__(self, server: Server, announced: str | None = None) -> None:
        super().__init__(server, announced)
        self._left = server.limits.max_requests_per_connection

    def _start(self, exchange: Exchange) -> None:
        self._left -= 1
        if self._left <= 0:
            exchange.keep_alive = False
        super()._start(exchange)
