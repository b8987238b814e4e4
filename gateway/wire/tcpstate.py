"""What the kernel knows of a connection that the other side has closed: whether it had taken what we wrote before.

Asked only when a connection ends; nowhere but on Linux can it tell.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

_STATE: Final = 0
_CLOSE_WAIT: Final = 8
_UNACKED: Final = 24
"""Offsets in `struct tcp_info` and a state of it (linux/tcp.h, include/net/tcp_states.h)."""
_SIZE: Final = 104


def was_taken(transport: asyncio.Transport) -> bool:
    """Whether the other side closed in good order, and had received all we wrote when we learned of it.

    Then its process has read it, too: a close with unread data is a reset. False where that is not certain.
    """
    connection = transport.get_extra_info("socket")
    if connection is None or not hasattr(socket, "TCP_INFO"):
        return False
    try:
        info: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return False  # closed already, or no TCP
    if len(info) < _UNACKED + 4:
        return False
    unacked: int = struct.unpack_from("=I", info, _UNACKED)[0]
    return info[_STATE] == _CLOSE_WAIT and unacked == 0
