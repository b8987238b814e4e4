"""HTTP/1.1 as text, made of what Envoy says of a message and read back from what the data plane writes."""

from collections.abc import Iterable
from typing import Any, Final

import httptools

from gateway.wire.message import HOP_BY_HOP, Headers, status_line

FRAMING: Final = HOP_BY_HOP | {b"content-length", b"expect", b"host", b"trailer"}
"""What Envoy's own connections say in their own way."""


class HeadError(ValueError):
    """A head that can't be written down as HTTP/1.1."""


def request_head(headers: Headers, framing: bytes) -> bytes:
    """A request's head from Envoy's headers, pseudo-headers first. Raises HeadError."""
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not method or not path:
        raise HeadError("Envoy's message names no :method or no :path")
    host = pseudo.get(b":authority", b"")
    lines = b"host: %b\r\n%b%b\r\n" % (host, _lines(headers), framing)
    return _without_breaks(b"%b %b HTTP/1.1" % (method, path)) + b"\r\n" + lines


def response_head(status: int, headers: Headers, framing: bytes) -> bytes:
    """A response's head from Envoy's headers. Raises HeadError."""
    return status_line(status) + _lines(headers) + framing + b"\r\n"


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    kept = [(name, value) for name, value in headers if name not in FRAMING and not name.startswith(b":")]
    return b"".join([_without_breaks(b"%b: %b" % each) + b"\r\n" for each in kept])


def _without_breaks(line: bytes) -> bytes:
    if b"\r" in line or b"\n" in line or b"\0" in line:
        raise HeadError("a header has a line break or a zero in it")
    return line


class MessageReader:
    """Reads one message that our own data plane has written.

    status:   of a response. method, target: of a request.
    headers:  lower-case names; known when `head` is set.
    complete: all of it has come. `take` gives what has come of the body since it was last asked.
    """

    def __init__(self, *, response: bool, bodiless: bool = False) -> None:
        """bodiless: a response to HEAD, whose length says nothing."""
        self._parser: Any = httptools.HttpResponseParser(self) if response else httptools.HttpRequestParser(self)
        self._response = response
        self._bodiless = bodiless
        self._pieces: list[bytes] = []
        self.status = 0
        self.method = b""
        self.target = b""
        self.headers: Headers = []
        self.head = False
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Read on. Interim responses are skipped, and so is what follows the message."""
        if self.complete:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.complete = True

    def take(self) -> bytes:
        """What has come of the body since the last time."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken

    # --- httptools callbacks

    def on_message_begin(self) -> None:
        if not self.head:
            self.headers = []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._response:
            self.status = self._parser.get_status_code()
            self.head = self.status >= 200
            self.complete = self.head and self._bodiless
        else:
            self.method = self._parser.get_method()
            self.head = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = self.head
