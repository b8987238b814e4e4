"""The channel between a supervisor and one of its workers: a pair of sockets, one of which the worker inherits.

Its end is how each learns that the other has died. Owns the framing; what is said is messages.py's.
"""

import asyncio
import socket
from typing import Generic, TypeVar

import msgspec

Received = TypeVar("Received")

_LONGEST_BYTES = 64 * 1024 * 1024


class Channel(Generic[Received]):
    """One end. Messages are sent in order and without waiting; the other side is never far behind."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, receives: object) -> None:
        """`receives`: the union of the messages that the other side sends."""
        self._reader = reader
        self._writer = writer
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(receives)
        self._encode = msgspec.msgpack.Encoder().encode

    def send(self, message: msgspec.Struct) -> None:
        """Send, unless the other side has gone."""
        if self._writer.is_closing():
            return
        data = self._encode(message)
        self._writer.write(len(data).to_bytes(4, "big") + data)

    async def flush(self) -> None:
        """Return when all that was sent is with the system, or the other side has gone."""
        try:
            await self._writer.drain()
        except OSError:
            return

    async def receive(self) -> Received | None:
        """The next message; None when the other side has gone. Raises ValueError for what is none."""
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            if length > _LONGEST_BYTES:
                raise ValueError(f"a message of {length} bytes")
            return self._decoder.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()


async def open_channel(end: socket.socket, receives: object) -> Channel[Received]:
    """The channel at one end of a pair, which is then the channel's."""
    end.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=end)
    return Channel(reader, writer, receives)
