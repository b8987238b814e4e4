"""Connecting to a server that has several addresses: one after the other, without waiting for the dead (RFC 8305).

Each address gets a head start over the next. The first that accepts wins; the others are closed. Sockets only: what is
spoken on them, TLS included, begins when one has won.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Final

from gateway.wire.address import Address

_HEAD_START_S: Final = 0.25


async def connect_first(addresses: Sequence[Address]) -> tuple[Address, socket.socket]:
    """A connected, non-blocking TCP socket to the address that accepted first. Raises OSError if none does."""
    if len(addresses) == 1:
        return addresses[0], await _connect(addresses[0])
    waiting = list(addresses)
    running: dict[asyncio.Task[socket.socket], Address] = {}
    first_errno = 0
    reasons: list[str] = []
    loop = asyncio.get_running_loop()
    try:
        while waiting or running:
            if waiting:
                address = waiting.pop(0)
                running[loop.create_task(_connect(address))] = address
            head_start = _HEAD_START_S if waiting else None
            await asyncio.wait(running, timeout=head_start, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                address = running.pop(task)
                error = task.exception()
                if error is None:
                    return address, task.result()
                if not isinstance(error, OSError):
                    raise error
                first_errno = first_errno or error.errno or 0
                reasons.append(f"{address}: {error.strerror or error}")
    finally:
        for task in running:
            task.add_done_callback(_close_result)
            task.cancel()
    raise OSError(first_errno, "; ".join(reasons))


async def _connect(address: Address) -> socket.socket:
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connection, address.sockaddr)
    except OSError as error:  # asyncio names the call that failed, not why
        connection.close()
        raise OSError(error.errno, os.strerror(error.errno) if error.errno else str(error)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _close_result(task: asyncio.Task[socket.socket]) -> None:
    """A second winner."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
