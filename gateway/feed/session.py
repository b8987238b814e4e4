"""HTTP sessions for looking at replicas: how connections to them are made is the same whoever looks."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import orjson

from gateway.feed.reach import Reach, Way


class ReplicaSession:
    """Asks replicas, each the way that leads to it. Takes what an `aiohttp.ClientSession` takes; keeps no cookie."""

    def __init__(self, user: str, reach: Reach, *, keep_s: float = 0.0, total_s: float | None = 300.0) -> None:
        """A session of the user agent `steplane-USER`.

        keep_s:  how long a connection is kept for the next request; 0: each request has one of its own.
        total_s: for each request, unless it says otherwise.
        """
        self._user = user
        self._reach = reach
        self._keep: dict[str, Any] = {"force_close": True} if keep_s <= 0 else {"keepalive_timeout": keep_s}
        self._timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=30.0)
        self._tcp = self._open(aiohttp.TCPConnector(limit=0, **self._keep))
        self._unix: dict[str, aiohttp.ClientSession] = {}
        """By the path of the socket."""

    def get(self, url: str, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Ask for what is at `url`, which begins with the URL of a replica."""
        return self._request("GET", url, options)

    def post(self, url: str, **options: Any) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send something there."""
        return self._request("POST", url, options)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._tcp, *self._unix.values()):
            await session.close()

    def _request(
        self, method: str, url: str, options: dict[str, Any]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        way, rest = self._reach.of(url)
        if way is None:
            return self._tcp.request(method, url, **options)
        if way.tls is not None:
            options = {**options, "ssl": way.tls(), "server_hostname": way.server_name}
        return self._session_of(way).request(method, way.origin + rest, **options)

    def _session_of(self, way: Way) -> aiohttp.ClientSession:
        if not way.socket:
            return self._tcp
        session = self._unix.get(way.socket)
        if session is None:
            connector = aiohttp.UnixConnector(way.socket, limit=0, **self._keep)
            session = self._unix[way.socket] = self._open(connector)
        return session

    def _open(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": f"steplane-{self._user}"},
        )


def open_session(user: str, reach: Reach | None = None) -> ReplicaSession:
    """A session that keeps no connection.

    A new connection for each request: it tests that the replica still accepts, and no keep-alive can go stale.
    """
    return ReplicaSession(user, reach or Reach())


async def read_at_most(response: aiohttp.ClientResponse, most_bytes: int) -> bytes | None:
    """The whole body; None if it is longer than that, of which no more is read."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > most_bytes:
            return None
    return bytes(body)


async def read_document(response: aiohttp.ClientResponse, most_bytes: int) -> dict[str, Any] | None:
    """The JSON object in a good answer; None for another status, another value, and what is longer than that.

    Raises ValueError for what is no JSON.
    """
    body = await read_at_most(response, most_bytes) if response.status == 200 else None
    document = None if body is None else orjson.loads(body)
    return document if isinstance(document, dict) else None
