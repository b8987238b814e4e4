"""What the kernel knows of a connection beyond our own buffers: what of that which we wrote the other side has taken.

Asked when a connection ends, or while its client is slow; nowhere but on Linux can it tell. And what it is to say at an
end that is none in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Final

_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: what has not been sent is thrown away."""
_STATE: Final = 0
_CLOSE_WAIT: Final = 8
_UNACKED: Final = 24
_BYTES_ACKED: Final = 120
"""Offsets in `struct tcp_info` and a state of it (linux/tcp.h, include/net/tcp_states.h)."""


def was_taken(transport: asyncio.Transport) -> bool:
    """Whether the other side closed in good order, and had received all we wrote when we learned of it.

    Then its process has read it, too: a close with unread data is a reset. False where that is not certain.
    """
    info = _tcp_info(transport, _UNACKED + 4)
    if info is None:
        return False
    unacked: int = struct.unpack_from("=I", info, _UNACKED)[0]
    return info[_STATE] == _CLOSE_WAIT and unacked == 0


def bytes_acked(transport: asyncio.Transport) -> int | None:
    """How much of what we wrote since the connection began the other side has received; None where nobody can tell."""
    info = _tcp_info(transport, _BYTES_ACKED + 8)
    return None if info is None else int.from_bytes(info[_BYTES_ACKED:], sys.byteorder)


def reset_at_close(transport: asyncio.Transport) -> None:
    """Have the other side see a reset instead of an end, when this one is closed; nothing for what is no TCP."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)


def _tcp_info(transport: asyncio.Transport, size: int) -> bytes | None:
    """The first `size` bytes of it; None where there is no such thing, or not so much of it."""
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:
        return None  # closed already, or no TCP
    return info if len(info) == size else None
