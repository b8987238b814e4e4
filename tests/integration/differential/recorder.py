"""An upstream that writes down every complete request and answers it with its number.

Reads strictly and by itself: what it cannot read in one way only is noted as a problem, for no proxy may send such a
thing on.
"""

from __future__ import annotations

import asyncio
import re
from typing import cast

from .message import Message

HEALTH = b"/healthy-or-not"
_START = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*)")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[^\0\r\n]*)?")
_DIGITS = re.compile(rb"[0-9]{1,18}")


class UnreadableError(Exception):
    """A request that could be read in two ways, or in none."""


class Recorder:
    """`messages`: what came, complete, since the last `taken`. `problems`: what could not be read."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, Message]] = []
        self.problems: list[str] = []
        self.port = 0
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._count = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await self._server.wait_closed()

    @property
    def in_the_middle(self) -> bool:
        """A part of a message has come, on a connection that is still open."""
        return any(connection.buffer for connection in self.connections)

    def taken(self) -> list[tuple[int, Message]]:
        """The messages so far, each with its number; forgotten here."""
        messages, self.messages = self.messages, []
        return messages

    def record(self, message: Message) -> int:
        self._count += 1
        self.messages.append((self._count, message))
        return self._count


class _Connection(asyncio.Protocol):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by ancestry
        self._recorder.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._recorder.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        try:
            while (taken := take(self.buffer)) is not None:
                message, self.buffer = taken
                self._answer(message)
        except UnreadableError as error:
            self._recorder.problems.append(f"{error}: {self.buffer!r}")
            self.transport.abort()

    def _answer(self, message: Message) -> None:
        if message.target == HEALTH or _is_the_gateways_own(message):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return
        number = self._recorder.record(message)
        status = b"405 No" if message.method == b"CONNECT" else b"200 OK"
        self.transport.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\nx-number: %d\r\n\r\n" % (status, number))


def _is_the_gateways_own(message: Message) -> bool:
    """It wants to know something of the replica: no client has sent that."""
    return any(name == b"user-agent" and value.startswith(b"steplane-") for name, value in message.headers)


def take(data: bytes) -> tuple[Message, bytes] | None:
    """The first message in `data` and what follows it; None while it is incomplete. Raises UnreadableError."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.split(b"\r\n")
    start = _START.fullmatch(first)
    if start is None:
        raise UnreadableError("not a request line")
    headers = fields_of(lines)
    framed = framed_body(headers, rest)
    if framed is None:
        return None
    body, rest = framed
    return Message(start[1], start[2], tuple(headers), body), rest


def fields_of(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Header lines as names in lower case and values. Raises UnreadableError."""
    headers = []
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            raise UnreadableError("not a header line")
        headers.append((field[1].lower(), field[2].rstrip(b" \t")))
    return headers


def framed_body(headers: list[tuple[bytes, bytes]], rest: bytes) -> tuple[bytes, bytes] | None:
    """The body at the beginning of `rest` and what follows it; None while it is incomplete. Raises UnreadableError."""
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if len(lengths) + len(codings) > 1:
        raise UnreadableError("framed more than once")
    if codings:
        if codings[0].lower() != b"chunked":
            raise UnreadableError("an unknown transfer coding")
        return _chunks(rest)
    if not lengths:
        return b"", rest
    if not _DIGITS.fullmatch(lengths[0]):
        raise UnreadableError("not a length")
    length = int(lengths[0])
    return (rest[:length], rest[length:]) if len(rest) >= length else None


def _chunks(rest: bytes) -> tuple[bytes, bytes] | None:
    pieces = []
    while True:
        line, end, rest = rest.partition(b"\r\n")
        if not end:
            return None
        size = _SIZE.fullmatch(line)
        if size is None:
            raise UnreadableError("not a chunk size")
        length = int(size[1], 16)
        if not length:
            break
        if len(rest) < length + 2:
            return None
        if rest[length : length + 2] != b"\r\n":
            raise UnreadableError("a chunk longer than its size")
        pieces.append(rest[:length])
        rest = rest[length + 2 :]
    while True:
        line, end, rest = rest.partition(b"\r\n")
        if not end:
            return None
        if not line:
            return b"".join(pieces), rest
        if not _FIELD.fullmatch(line):
            raise UnreadableError("not a trailer line")
