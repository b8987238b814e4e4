"""How many connections each client address has: what one address may take from all the others.

An IPv6 client owns a /64 at least, so it is counted by that. Knows nothing of connections.
"""

import socket


class AddressCounts:
    """Counts by address, with a limit for each. Only addresses that have connections are kept."""

    __slots__ = ("_counts", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._counts: dict[bytes, int] = {}

    def enter(self, address: str) -> bool:
        """Count one more, if there is room for it; there always is for what is no address (a Unix socket's)."""
        key = network_of(address)
        if not key:
            return True
        count = self._counts.get(key, 0)
        if count >= self.limit:
            return False
        self._counts[key] = count + 1
        return True

    def leave(self, address: str) -> None:
        """Count one less of those that were let in."""
        key = network_of(address)
        count = self._counts.get(key, 0)
        if count > 1:
            self._counts[key] = count - 1
        else:
            self._counts.pop(key, None)

    def __len__(self) -> int:
        """Addresses that have connections now."""
        return len(self._counts)


def network_of(address: str) -> bytes:
    """What an address is counted by: itself, or the /64 that it is in; nothing for what is no address."""
    try:
        if ":" not in address:
            return socket.inet_pton(socket.AF_INET, address)
        packed = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return b""
    return packed[12:] if packed.startswith(_MAPPED) else packed[:8]


_MAPPED = bytes(10) + b"\xff\xff"
"""Begins an IPv6 address that stands for one of IPv4."""
