"""How to get at replicas that a plain URL does not lead to: behind a Unix socket, or under TLS of the pool's own.

Whoever connects the data plane to a replica says so here, so that whoever looks at it goes the same way. Data only.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Way:
    """The way to one server.

    origin:      `scheme://host:port` to ask for; behind a Unix socket it is only what the `host` header says.
    socket:      path of a Unix socket; "" for none.
    tls:         gives the context of each new connection; None: the usual one.
    server_name: the name in its certificate, where that is not the host's.
    """

    origin: str
    socket: str = ""
    tls: Callable[[], ssl.SSLContext] | None = None
    server_name: str | None = None


class Reach:
    """The ways that are not usual, by the URL of the replica."""

    def __init__(self) -> None:
        self._ways: dict[str, Way] = {}

    def add(self, url: str, way: Way) -> None:
        """From now on, what begins with `url` goes this way."""
        self._ways[url] = way

    def remove(self, url: str) -> None:
        """Nothing is there any more."""
        self._ways.pop(url, None)

    def of(self, url: str) -> tuple[Way | None, str]:
        """The way of a URL, and the rest of the URL behind the replica's own; None: the usual way to all of it."""
        if not self._ways:
            return None, url
        if url.startswith(UNIX):
            # Nothing in the text says where the socket's path ends.
            for base, way in self._ways.items():
                if way.socket and url.startswith(f"{base}/"):
                    return way, url[len(base) :]
            return None, url
        end = url.find("/", url.find("://") + 3)
        base = url if end < 0 else url[:end]
        found = self._ways.get(base)
        return (None, url) if found is None else (found, url[len(base) :])
