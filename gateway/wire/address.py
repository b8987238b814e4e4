"""Where a server can be reached on the network, and how a name becomes such places. Opens no connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Address:
    """One place: an address family and what `socket.connect` takes for it."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Resolver(Protocol):
    """Looks up names."""

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """All addresses of a name, the preferred first. Raises OSError if there are none, or nobody can tell."""


class SystemResolver:
    """What the system says: `getaddrinfo` (hosts file, DNS, RFC 6724), in a thread, so that the loop never waits."""

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return _addresses((family, sockaddr) for family, _, _, _, sockaddr in found)


def literal(host: str, port: int) -> Address | None:
    """The address that `host` is, if it is one and not a name; an IPv6 address may have a zone (`fe80::1%eth0`)."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return _addresses((family, sockaddr) for family, _, _, _, sockaddr in found)[0]


def interleaved(addresses: Sequence[Address], first: Address | None) -> list[Address]:
    """In the order in which to try them: `first`, if it is among them, then the families by turns (RFC 8305, 4)."""
    order = [address for address in addresses if address == first]
    rest = [address for address in addresses if address != first]
    if not rest:
        return order
    leading = [address for address in rest if address.family == rest[0].family]
    following = [address for address in rest if address.family != rest[0].family]
    if order and order[0].family == rest[0].family:
        leading, following = following, leading
    for at in range(max(len(leading), len(following))):
        order += leading[at : at + 1] + following[at : at + 1]
    return order


def _addresses(found: Iterable[tuple[int, tuple[Any, ...]]]) -> list[Address]:
    return list(dict.fromkeys(Address(int(family), tuple(sockaddr)) for family, sockaddr in found))
