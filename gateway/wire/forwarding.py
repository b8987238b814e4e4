"""For whom a request is forwarded: what the replica is told of the client, and whose word on that is taken.

`X-Forwarded-*` as all proxies write it, `Forwarded` as RFC 7239 has it, `Via` as RFC 9110 section 7.6.3 has it. What a
client itself says in these headers is passed on only if it is a trusted proxy. Knows nothing of sockets.

The cost: a head is remembered together with its `Trail`, and a connection remembers the lines for the last trail. So
for most requests both are found by one comparison.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

from gateway.wire.message import Headers

Network: TypeAlias = IPv4Network | IPv6Network


class Trail:
    """What a head says about the way that its request has come.

    host:   what it asks for: the authority of its target, or `Host`.
    http10: it came as HTTP/1.0.
    fields: the headers of that kind, names in lower case, as they came.
    """

    __slots__ = ("fields", "host", "http10")

    def __init__(self, host: bytes, http10: bool, fields: Headers) -> None:
        self.host = host
        self.http10 = http10
        self.fields = fields

    def and_also(self, fields: Headers) -> Trail:
        """The same with further headers."""
        return Trail(self.host, self.http10, self.fields + fields) if fields else self


class Peer:
    """Who is at the other end of a client connection.

    address: of the client, as text; empty where a Unix socket hides it.
    https:   the connection is encrypted.
    trusted: a proxy whose word on other clients is taken.
    """

    __slots__ = ("address", "https", "trusted")

    def __init__(self, address: str, https: bool, trusted: bool) -> None:
        self.address = address
        self.https = https
        self.trusted = trusted


class Forwarding:
    """Which of the headers are written, and who is trusted to have written them already."""

    __slots__ = ("_networks", "_rfc7239", "_trusts_unix", "_via", "_x_forwarded")

    def __init__(
        self,
        *,
        x_forwarded: bool = False,
        rfc7239: bool = False,
        via: bytes = b"",
        trusted: tuple[Network, ...] = (),
        trusts_unix: bool = False,
    ) -> None:
        """x_forwarded: X-Forwarded-For, -Proto and -Host; rfc7239: Forwarded; via: our name in Via, or nothing.

        trusted: the addresses of trusted proxies; trusts_unix: whoever connects through a Unix socket is one.
        """
        self._x_forwarded = x_forwarded
        self._rfc7239 = rfc7239
        self._via = via
        self._networks = trusted
        self._trusts_unix = trusts_unix

    def concerns(self, name: bytes) -> bool:
        """Whether a header, by its lower-case name, is ours to pass on, to change or to drop."""
        if name.startswith(b"x-forwarded-") or name in _OTHERS:
            return self._x_forwarded or self._rfc7239
        return name == b"via" and self._via != b""

    def peer(self, address: str, https: bool) -> Peer:
        """What we hold of a client that connects from `address` (empty: through a Unix socket)."""
        plain = _plain(address)
        return Peer("" if plain is None else str(plain), https, self._trusts(plain))

    def lines(self, trail: Trail, peer: Peer) -> bytes:
        """The header lines for a request that came by `trail` from `peer`, CRLF after each."""
        said: dict[bytes, bytes] = {}
        via = b""
        for name, value in trail.fields:
            if name == b"via":
                via = _joined(via, value)
            elif peer.trusted:
                said[name] = _joined(said[name], value) if name in said and name in _LISTS else value
        if self._x_forwarded:
            if peer.address:
                said[b"x-forwarded-for"] = _joined(said.get(b"x-forwarded-for", b""), peer.address.encode())
            said.setdefault(b"x-forwarded-proto", b"https" if peer.https else b"http")
            if trail.host:
                said.setdefault(b"x-forwarded-host", trail.host)
        if self._rfc7239:
            said[b"forwarded"] = _joined(said.get(b"forwarded", b""), _element(trail.host, peer))
        if self._via:
            said[b"via"] = _joined(via, (b"1.0 " if trail.http10 else b"1.1 ") + self._via)
        return b"".join([b"%b: %b\r\n" % (name, value) for name, value in said.items()])

    def _trusts(self, address: IPv4Address | IPv6Address | None) -> bool:
        if address is None:
            return self._trusts_unix
        return any(address in network for network in self._networks)


def _plain(address: str) -> IPv4Address | IPv6Address | None:
    """The address without a zone, and as one of IPv4 where it stands for one."""
    if not address:
        return None
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def _joined(before: bytes, value: bytes) -> bytes:
    """One more entry of a header that is a list."""
    return b"%b, %b" % (before, value) if before else value


def _element(host: bytes, peer: Peer) -> bytes:
    """An entry of `Forwarded`; what is no token stands in quotes (RFC 7239 section 4)."""
    client = peer.address.encode() or b"unknown"
    if b":" in client:
        client = b'"[%b]"' % client
    element = b"for=%b;proto=%b" % (client, b"https" if peer.https else b"http")
    if host:
        element += (
            b';host="%b"' % host if not host.replace(b".", b"").replace(b"-", b"").isalnum() else b";host=" + host
        )
    return element


_OTHERS = frozenset((b"forwarded", b"x-real-ip"))
_LISTS = frozenset((b"x-forwarded-for", b"forwarded"))
"""Of which each proxy adds an entry; of the others the last one counts."""
