"""Members by name: all addresses of a host (A and AAAA), or the servers of a service (SRV).

Addresses come from the system's resolver, so that hosts files and search domains count. SRV records it can't ask for;
that takes dnspython (the extra `dns`).
"""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.discovery.member import Failed, Found, Member, url_of

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class DnsOptions:
    """What to look up.

    port:       of the servers; None for SRV, whose records say it.
    refresh_s:  from one look to the next.
    nameserver: host and port of a DNS server for SRV, in the place of the system's.
    """

    name: str
    kind: Literal["A", "SRV"]
    port: int | None
    scheme: str
    refresh_s: float
    nameserver: tuple[str, int] | None = None


class Dns:
    """A `Producer`."""

    def __init__(self, options: DnsOptions) -> None:
        self._options = options

    async def run(self, found: Found, failed: Failed) -> None:
        """Look now and every `refresh_s`; a name that is not found is a failure, for it was there once."""
        look = self._servers if self._options.kind == "SRV" else self._addresses
        known: Sequence[Member] | None = None
        while True:
            try:
                members = await look()
            except OSError as error:
                failed(f"{self._options.name}: {error}")
            else:
                failed(None)
                if members != known:
                    known = members
                    await found(members)
            await asyncio.sleep(self._options.refresh_s)

    async def _addresses(self) -> list[Member]:
        options = self._options
        assert options.port is not None
        infos = await asyncio.get_running_loop().getaddrinfo(options.name, options.port, type=socket.SOCK_STREAM)
        hosts = sorted({str(address[0]) for *_, address in infos})
        return [Member(url_of(options.scheme, host, options.port)) for host in hosts]

    async def _servers(self) -> list[Member]:
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        options = self._options
        resolver = Resolver(configure=options.nameserver is None)
        if options.nameserver is not None:
            resolver.nameservers, resolver.port = [options.nameserver[0]], options.nameserver[1]
        try:
            answer = await resolver.resolve(options.name, "SRV", lifetime=_TIMEOUT_S)
        except DNSException as error:
            raise OSError(str(error) or type(error).__name__) from None
        records = sorted((each.priority, str(each.target).rstrip("."), each.port, each.weight) for each in answer)
        # As RFC 2782 has it: those of a higher number are for when no other is there.
        first = records[0][0]
        return [
            Member(url_of(options.scheme, host, port), weight=float(weight) or None)
            for priority, host, port, weight in records
            if priority == first
        ]
