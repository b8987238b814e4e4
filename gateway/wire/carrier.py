"""Who takes requests to an upstream where that is not a connection of ours: somebody else's data plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.wire.address import Address
    from gateway.wire.connection import UpstreamConnection
    from gateway.wire.exchange import Exchange


class Carrier(Protocol):
    """Stands in the place of sockets, for all upstreams that were given it."""

    def carry(self, connection: UpstreamConnection, exchange: Exchange, address: Address | None) -> None:
        """Make `connection` by a transport that brings what is written to `address`, and the response back.

        exchange: whose request will be written to it. address: None for a Unix socket. Raises OSError.
        """
