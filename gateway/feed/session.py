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
