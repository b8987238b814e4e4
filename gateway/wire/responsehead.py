"""The head of a response: read once, checked by llhttp, and remembered, as requesthead.py does it for requests.

A server sends the same head for a second (its `date`) but for the length of the body. Knows nothing of sockets.
"""

import math
import re
from dataclasses import dataclass

import httptools

from gateway.wire.message import (
    HOP_BY_HOP,
    KEPT_BYTES,
    MAX_FIELDS,
    connection_options,
    unusual_length,
    without_length,
)


class BadResponseError(Exception):
    """A head that cannot be trusted; the message continues "the upstream …"."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseHead:
    """A response's head without the length of its body.

    lines:        the end-to-end header lines to send on, CRLF after each; without `content-length` and `x-request-id`.
    event_stream: the body is one of server-sent events, not compressed, so that events can be told in it.
    """

    status: int
    lines: bytes
    has_length: bool
    chunked: bool
    keep_alive: bool
    event_stream: bool
    keep_alive_s: float
    """After which the server closes an unused connection, as it says itself; infinity if it does not."""


class ResponseHeads:
    """Reads heads and remembers those it has read, within bounds. One for all connections to an upstream.

    keep_alive_s: what the last head said that told after how long unused connections are closed.
    """

    __slots__ = ("_known", "keep_alive_s")

    def __init__(self) -> None:
        self._known: dict[bytes, ResponseHead] = {}
        self.keep_alive_s: float = math.inf

    def read(self, data: bytes) -> tuple[ResponseHead, int]:
        """The head in `data`, which ends with the empty line, and its content length (-1: none).

        Raises BadResponseError.
        """
        key, length = without_length(data)
        head = self._known.get(key)
        if head is None:
            head = parse(data)
            if head.keep_alive_s != math.inf:
                self.keep_alive_s = head.keep_alive_s
            if head.has_length and length < 0:
                return head, unusual_length(data)
            if len(key) <= KEPT_BYTES:
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[key] = head
        elif length < 0 and head.has_length:
            raise BadResponseError("sent an empty content-length")  # equal to a known head without its digits
        return head, length


def parse(data: bytes) -> ResponseHead:
    """Check a complete head with llhttp and take it apart. Raises BadResponseError."""
    status = _check(data)
    first, *fields = data[:-4].split(b"\r\n")
    if len(fields) > MAX_FIELDS:
        raise BadResponseError(f"sent more than {MAX_FIELDS} header fields")
    if _STATUS_LINE.fullmatch(first) is None:
        raise BadResponseError("sent a status line that is none of HTTP/1.1 or 1.0")
    http10 = first.startswith(b"HTTP/1.0")
    lines: list[bytes] = []
    options: list[bytes] = []
    has_length = chunked = event_stream = encoded = False
    keep_alive_s = math.inf
    for line in fields:
        name, _, value = line.partition(b":")
        lower = name.lower()
        if lower not in _HANDLED:
            lines.append(line)
        elif lower == b"content-type":
            event_stream = value.strip().lower().startswith(b"text/event-stream")
            lines.append(line)
        elif lower == b"content-encoding":
            encoded = encoded or value.strip().lower() != b"identity"
            lines.append(line)
        elif lower == b"content-length":
            has_length = True
        elif lower == b"transfer-encoding":
            if chunked or value.strip().lower() != b"chunked":
                raise BadResponseError("used a transfer coding other than chunked")
            chunked = True
        elif lower == b"connection":
            options.append(value)
        elif lower == b"keep-alive":
            timeout = _TIMEOUT.search(value)
            keep_alive_s = math.inf if timeout is None else float(int(timeout[1]))
    named = connection_options(options)
    if drop := named - _PLAIN_OPTIONS:
        lines = [line for line in lines if line.partition(b":")[0].lower() not in drop]
    return ResponseHead(
        status=status,
        lines=b"".join(line + b"\r\n" for line in lines),
        has_length=has_length,
        chunked=chunked,
        # HTTP/1.0 has no chunks: whoever sends them is not trusted with a second request (RFC 9112 section 6.1).
        keep_alive=b"close" not in named and (not http10 or (b"keep-alive" in named and not chunked)),
        event_stream=event_stream and not encoded,
        keep_alive_s=keep_alive_s,
    )


def _check(data: bytes) -> int:
    """The status of a valid head."""
    probe = _Probe()
    parser = httptools.HttpResponseParser(probe)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise BadResponseError("answered with an upgrade that was not asked for") from None
    except httptools.HttpParserError as error:
        raise BadResponseError(f"sent invalid HTTP ({error})") from None
    if not probe.complete or b"\r\n " in data or b"\r\n\t" in data:
        raise BadResponseError("sent a folded or unfinished header")
    status: int = parser.get_status_code()
    if status < 100:
        raise BadResponseError(f"sent the status {status}, which there is not")
    if status == 101:
        raise BadResponseError("answered with an upgrade that was not asked for")
    return status


class _Probe:
    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def on_headers_complete(self) -> None:
        self.complete = True


_KEPT = 256
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [0-9]{3}(?: [\t\x20-\x7e\x80-\xff]*)?")
_TIMEOUT = re.compile(rb"(?:^|[\s,])timeout\s*=\s*\"?([0-9]{1,6})\b", re.IGNORECASE)
_PLAIN_OPTIONS = frozenset((b"close", b"keep-alive", b""))
_HANDLED = HOP_BY_HOP | {b"content-encoding", b"content-length", b"content-type", b"x-request-id"}
