"""The chunked transfer coding (RFC 9112 section 7.1), read strictly.

Bytes in, body out; what follows the body stays with the caller, which llhttp could not tell. Extensions and trailer
fields are read and dropped: nothing between us and the engine depends on them, and they must not pass for headers.
"""

import re
from enum import IntEnum


class ChunkError(ValueError):
    """The body is not in the chunked coding."""


class _Part(IntEnum):
    size = 0
    data = 1
    data_end = 2
    trailer = 3


class ChunkedBody:
    """Decodes one body. `complete` once its last chunk and trailer have been read."""

    __slots__ = ("_line", "_part", "_remaining", "_trailer_bytes", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._part = _Part.size
        self._remaining = 0
        self._line = b""
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Decode the next bytes: a piece of the body, and what is left over behind its end. Raises ChunkError."""
        pieces: list[bytes] = []
        at = 0
        size = len(data)
        while at < size and not self.complete:
            if self._part == _Part.data:
                piece = data[at : at + self._remaining]
                pieces.append(piece)
                at += len(piece)
                self._remaining -= len(piece)
                if not self._remaining:
                    self._part = _Part.data_end
                continue
            if self._part == _Part.size and not self._line:
                at = _whole_chunks(data, at, pieces)
            end = data.find(b"\n", at)
            if end < 0:
                self._keep(data[at:])
                return b"".join(pieces), b""
            line = self._line + data[at : end + 1]
            self._keep_nothing()
            at = end + 1
            if len(line) > _MAX_LINE_BYTES:
                raise ChunkError("a line of the chunked coding is too long")
            if not line.endswith(b"\r\n"):
                raise ChunkError("a line of the chunked coding does not end with CRLF")
            self._read_line(line[:-2])
        return b"".join(pieces), data[at:]

    @property
    def left(self) -> int:
        """How many bytes of the chunk that has begun are still to come, its CRLF included, and 0 between two.

        -1 where that can't be said: within a chunk's first line, or behind the last chunk.
        """
        if self._part == _Part.data:
            return self._remaining + 2
        if self._part == _Part.data_end:
            return 2 - len(self._line) if self._line in (b"", b"\r") else -1
        return 0 if self._part == _Part.size and not self._line else -1

    def _keep(self, rest: bytes) -> None:
        self._line += rest
        if len(self._line) > _MAX_LINE_BYTES:
            raise ChunkError("a line of the chunked coding is too long")

    def _keep_nothing(self) -> None:
        self._line = b""

    def _read_line(self, line: bytes) -> None:
        if self._part == _Part.data_end:
            if line:
                raise ChunkError("a chunk is longer than its size says")
            self._part = _Part.size
        elif self._part == _Part.size:
            match = _SIZE.fullmatch(line)
            if match is None:
                raise ChunkError("a chunk does not begin with its size in hexadecimal")
            self._remaining = int(match[1], 16)
            self._part = _Part.data if self._remaining else _Part.trailer
        elif not line:
            self.complete = True
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise ChunkError("the trailer is too long")
            if _TRAILER.fullmatch(line) is None:  # a request line, to a parser that takes the body to have ended
                raise ChunkError("a trailer line is not a header")


def _whole_chunks(data: bytes, at: int, pieces: list[bytes]) -> int:
    """Take the chunks that are all there, apart from the last; returns where it stopped. What is odd is left alone.

    Measured: 0.9 µs a chunk. Chunks of one byte are all that a client needs to keep the loop busy.
    """
    while (found := _WHOLE_SIZE.match(data, at)) is not None:
        start = found.end()
        end = start + int(found[1], 16)
        if end == start or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[start:end])
        at = end + 2
    return at


_MAX_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16 * 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")
_WHOLE_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
