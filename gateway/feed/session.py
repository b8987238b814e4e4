"""HTTP sessions for looking at replicas: how connections to them are made is the same whoever looks."""

import aiohttp


def open_session(user: str) -> aiohttp.ClientSession:
    """A session of the user agent `steplane-USER` that keeps no connection and no cookie.

    A new connection for each request: it tests that the replica still accepts, and no keep-alive can go stale.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"user-agent": f"steplane-{user}"},
    )


async def read_at_most(response: aiohttp.ClientResponse, most_bytes: int) -> bytes | None:
    """The whole body; None if it is longer than that, of which no more is read."""
    body = bytearray()
    async for data in response.content.iter_any():
        body += data
        if len(body) > most_bytes:
            return None
    return bytes(body)
