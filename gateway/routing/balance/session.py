"""Whose conversation a request belongs to: what a header says, or the field `user` of the body."""

from collections.abc import Callable

import msgspec

from gateway.routing.balance.ask import Ask
from gateway.routing.head import header_reader

_MOST_BYTES = 1 << 20
"""Finding one field reads the whole body, 0.4 ms for so much; a larger one belongs to no session."""


class _Body(msgspec.Struct, gc=False):
    user: str = ""


_decode = msgspec.json.Decoder(_Body).decode


def session_of_header(name: str) -> Callable[[Ask], bytes]:
    """Reads the session from the header of that name."""
    read = header_reader(name)

    def session(ask: Ask) -> bytes:
        return (read(ask.head) or "").encode()

    return session


def session_of_user(ask: Ask) -> bytes:
    """The session by the body's `user`; empty where there is none, or none that is a text."""
    if not ask.body or len(ask.body) > _MOST_BYTES:
        return b""
    try:
        return _decode(ask.body).user.encode("utf-8", "surrogatepass")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return b""
