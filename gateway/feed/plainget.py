"""A question to a server, and the way there: a GET on a connection of its own, for those who ask every replica often.

A connection for each question tests that the server still accepts, and none can go stale.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from urllib.parse import urlsplit

from gateway.feed.reach import UNIX, Reach


class PlainGet:
    """`request`: what is to be written on the connection."""

    __slots__ = ("_host", "_port", "_reach", "_tls", "_url", "request")

    def __init__(self, user: str, url: str, path: str, reach: Reach | None = None) -> None:
        """By the user agent `steplane-USER`. `url`: of the server, without a path.

        reach: the ways to servers that a plain URL does not lead to.
        """
        self._url = url
        self._reach = reach
        way = None if reach is None else reach.of(f"{url}/")[0]
        origin = urlsplit(url if way is None else way.origin)
        if url.startswith(UNIX) and way is None:
            raise ValueError(f"nothing says where the socket of {url} is")
        self._tls = origin.scheme == "https"
        self._host = origin.hostname or ""
        self._port = origin.port or (443 if self._tls else 80)
        self.request = (
            f"GET {path} HTTP/1.1\r\nhost: {origin.netloc}\r\nuser-agent: steplane-{user}\r\n"
            "accept: */*\r\nconnection: close\r\n\r\n"
        ).encode("latin-1")

    async def send(self, asker: asyncio.Protocol) -> None:
        """Connect `asker`, which is to write `request`. Raises OSError."""
        loop = asyncio.get_running_loop()
        way = None if self._reach is None else self._reach.of(f"{self._url}/")[0]
        if way is not None and way.socket:
            await loop.create_unix_connection(lambda: asker, way.socket)
            return
        tls: ssl.SSLContext | bool | None = None
        name: str | None = None
        if self._tls:
            tls = True if way is None or way.tls is None else way.tls()
            name = None if way is None else way.server_name
        try:
            await loop.create_connection(lambda: asker, self._host, self._port, ssl=tls, server_hostname=name)
        except socket.gaierror as error:
            raise OSError(f"no address for {self._host}:{self._port}: {error.strerror}") from None
