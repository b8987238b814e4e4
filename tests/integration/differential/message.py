"""A request as one reader understood it, and what must be the same whoever reads it.

Owns the comparison. Headers that a proxy may add, drop or spell anew say nothing about what was understood.
"""

from __future__ import annotations

from dataclasses import dataclass

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_OF_FRAMING = frozenset((b"content-length", b"expect"))
_ADDED = (b"x-forwarded-", b"x-request-id", b"x-steplane-", b"forwarded", b"via")


@dataclass(frozen=True, slots=True)
class Message:
    """`headers` as they were read, the body without its framing."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def essence(self) -> tuple[bytes, bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]:
        """Method, authority, target in origin form, end-to-end headers by name, and body."""
        authority, target = origin_form(self.target, self.method)
        hosts = [value for name, value in self.headers if name == b"host"]
        kept = [
            (name, value)
            for name, value in self.headers
            if name not in _HOP_BY_HOP | _OF_FRAMING | {b"host"} and not name.startswith(_ADDED)
        ]
        host = (authority or (hosts[0] if hosts else b"")).lower()
        return self.method, host, target, tuple(sorted(kept, key=lambda header: header[0])), self.body

    def without(self, names: frozenset[bytes]) -> Message:
        """The same without headers of these names: what a `Connection` header names may go on or not."""
        return Message(
            self.method, self.target, tuple(each for each in self.headers if each[0] not in names), self.body
        )


def origin_form(target: bytes, method: bytes) -> tuple[bytes, bytes]:
    """The authority that a target names, if it does, and its path with the query."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https") or target.startswith(b"/"):
        return b"", target
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    path = rest[end:]
    if not path and method == b"OPTIONS":  # RFC 9112 section 3.2.4
        return rest[:end], b"*"
    return rest[:end], path if path.startswith(b"/") else b"/" + path
