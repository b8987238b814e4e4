"""The head of a request: read once, checked by llhttp, and remembered.

A client sends the same head with every request but for the length of the body, and perhaps a line that is new each time
(a trace or request id). So a head is looked up by its bytes with those digits cut out, then once more without the lines
that were never seen before; only a head that is still unknown is given to llhttp (which refuses everything that could
be framed in two ways) and taken apart. Knows nothing of sockets.
"""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

from gateway.wire.forwarding import Forwarding, Trail
from gateway.wire.message import (
    HEAD_END,
    HOP_BY_HOP,
    KEPT_BYTES,
    MAX_DIGITS,
    MAX_FIELDS,
    Headers,
    Reply,
    connection_options,
    error_reply,
    unusual_length,
    without_length,
)


class RefusedError(Exception):
    """A request that is refused; `reply` says why.

    request_id: the client's, if the head got so far. head_only: the request is a HEAD, whose answer has no body.
    """

    def __init__(self, reply: Reply, request_id: bytes = b"", head_only: bool = False) -> None:
        super().__init__(reply.status)
        self.reply = reply
        self.request_id = request_id
        self.head_only = head_only


class RequestHead:
    """A request's head without the length of its body, which differs between requests that share it.

    target:     in origin form (RFC 9112 section 3.2.1), or `*`.
    path:       percent-decoded, without the query: what the upstream will understand.
    lines:      the end-to-end header lines to send on, CRLF after each; without `content-length` and `x-request-id`.
    headers:    as they came, hop-by-hop ones too; without `content-length`.
    has_length: there is a `content-length`.
    drops:      a `Connection` header names further headers that end here.
    base:       the head that this one is but for `new_lines`, which were never seen before; else None.
    trail:      what it says about its way here, which is then not in `lines`; None if nobody wants to know.
    note:       the handler's own; kept with the head.

    Not to be changed but for `note`.
    """

    __slots__ = (
        "base",
        "chunked",
        "drops",
        "expects_continue",
        "has_length",
        "headers",
        "http10",
        "keep_alive",
        "lines",
        "method",
        "new_lines",
        "note",
        "path",
        "request_id",
        "target",
        "trail",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        path: str,
        http10: bool,
        keep_alive: bool,
        headers: Headers,
        lines: bytes,
        has_length: bool,
        chunked: bool,
        expects_continue: bool,
        request_id: bytes,
        drops: bool,
        trail: Trail | None = None,
        base: "RequestHead | None" = None,
        new_lines: tuple[bytes, ...] = (),
        note: Any = None,
    ) -> None:
        self.method = method
        self.target = target
        self.path = path
        self.http10 = http10
        self.keep_alive = keep_alive
        self.headers = headers
        self.lines = lines
        self.has_length = has_length
        self.chunked = chunked
        self.expects_continue = expects_continue
        self.request_id = request_id
        self.drops = drops
        self.trail = trail
        self.base = base
        self.new_lines = new_lines
        self.note: Any = note

    def varied(
        self, lines: bytes, request_id: bytes, trail: Trail | None, new: Headers, new_lines: tuple[bytes, ...]
    ) -> "RequestHead":
        """The same head with further header lines."""
        return RequestHead(
            self.method,
            self.target,
            self.path,
            self.http10,
            self.keep_alive,
            self.headers + new,
            lines,
            self.has_length,
            self.chunked,
            self.expects_continue,
            request_id,
            False,
            trail,
            self,
            new_lines,
            self.note,
        )

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its lower-case name."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None


class RequestHeads:
    """Reads heads and remembers those it has read, within bounds. One for all connections of a server."""

    __slots__ = ("_forwarding", "_known", "_lines")

    def __init__(self, forwarding: Forwarding | None = None) -> None:
        """forwarding: says which headers go into the trail of a head; None: none do, and they are as all others."""
        self._forwarding = forwarding
        self._known: dict[bytes, RequestHead] = {}
        self._lines: set[bytes] = set()
        """The lines of the known heads."""

    def read(self, data: bytes) -> tuple[RequestHead, int]:
        """The head in `data`, which ends with the empty line, and its content length (-1: none).

        Raises RefusedError.
        """
        key, length = without_length(data)
        head = self._known.get(key)
        if head is None:
            if data.count(b"\n") > MAX_FIELDS + 2:
                reply = error_reply(431, f"the request has more than {MAX_FIELDS} header fields", "header_too_large")
                raise RefusedError(reply)
            head = self._varied(key) or self._learned(key, data)
            if head.has_length and length < 0:
                length = unusual_length(data)
                if length < 0:
                    raise RefusedError(_bad("content-length is empty"))  # equal to a known head without its digits
        elif length < 0 and head.has_length:
            raise RefusedError(_bad("content-length is empty"))
        return head, length

    def _varied(self, key: bytes) -> RequestHead | None:
        """A known head with a few lines that are new, or None."""
        new, rest = self._split(key)
        base = self._known.get(rest) if new else None
        if base is None or base.drops:
            return None
        HeadProbe().feed(b"GET / HTTP/1.1\r\n%b\r\n\r\n" % b"\r\n".join(new))
        headers: Headers = []
        fields: Headers = []
        lines = [base.lines]
        request_id = base.request_id
        names = {name.lower() for name, _ in base.headers}
        for line in new:
            name, _, value = line.partition(b":")
            lower = name.lower()
            if lower in names:
                return None  # the order of equal names means something
            value = value.strip(b" \t")
            headers.append((name, value))
            if lower == b"x-request-id":
                request_id = value
            elif self._forwarding is not None and self._forwarding.concerns(lower):
                fields.append((lower, value))
            else:
                lines.append(line + b"\r\n")
        trail = base.trail if base.trail is None else base.trail.and_also(fields)
        return base.varied(b"".join(lines), request_id, trail, headers, tuple(new))

    def _split(self, key: bytes) -> tuple[list[bytes], bytes]:
        """The lines that may be new each time, and the head without them; no lines if it cannot be split like that."""
        known = self._lines
        lines = key[:-4].split(b"\r\n")
        new = [line for line in lines if line not in known]
        if not new or len(new) > _MAX_NEW_LINES or new[0] is lines[0]:
            return [], key
        for line in new:
            name, colon, _ = line.partition(b":")
            lower = name.lower()
            if not colon or (lower in _HANDLED and lower != b"x-request-id") or lower.startswith(_OURS):
                return [], key
        return new, b"\r\n".join([line for line in lines if line in known]) + HEAD_END

    def _learned(self, key: bytes, data: bytes) -> RequestHead:
        """An unknown head taken apart and remembered: without the lines that are new, if the others were known."""
        new, rest = self._split(key)
        if new and rest not in self._known:
            base = data
            for line in new:
                base = base.replace(b"\r\n%b\r\n" % line, b"\r\n", 1)
            self._keep(rest, parse(base, self._forwarding))
            head = self._varied(key)
            if head is not None:
                return head
        head = parse(data, self._forwarding)
        if not head.has_length or key is not data:
            self._keep(key, head)
        return head

    def _keep(self, key: bytes, head: RequestHead) -> None:
        if len(key) > KEPT_BYTES:
            return
        if len(self._known) >= _KEPT:
            self._known.clear()
            self._lines.clear()
        self._known[key] = head
        self._lines.update(key[:-4].split(b"\r\n"))


def parse(data: bytes, forwarding: Forwarding | None = None) -> RequestHead:
    """Check a complete head with llhttp and take it apart. Raises RefusedError."""
    probe = HeadProbe()
    probe.feed(data)
    if not probe.complete:
        raise RefusedError(_bad("the header does not end where its empty line is"))
    first, *fields = data[:-4].split(b"\r\n")
    try:
        method, target, version = first.split(b" ")
    except ValueError:
        raise RefusedError(_bad("the request line is not a method, a target and a version")) from None
    if version not in _VERSIONS:
        raise RefusedError(error_reply(505, "only HTTP/1.1 and HTTP/1.0 are spoken here", "http_version"))
    headers: Headers = []
    lines: list[bytes] = []
    options: list[bytes] = []
    codings: list[bytes] = []
    fields_of_trail: Headers = []
    host = b""
    hosts = 0
    has_length = expects = False
    request_id = b""
    for line in fields:
        name, _, value = line.partition(b":")
        value = value.strip(b" \t")
        lower = name.lower()
        if lower != b"content-length":
            headers.append((name, value))
        if lower.startswith(_OURS):
            continue
        if lower not in _HANDLED:
            if forwarding is not None and forwarding.concerns(lower):
                fields_of_trail.append((lower, value))
            else:
                lines.append(line)
        elif lower == b"host":
            hosts += 1
            host = value
        elif lower == b"content-length":
            has_length = True
        elif lower == b"transfer-encoding":
            codings.append(value)
        elif lower == b"connection":
            options.append(value)
        elif lower == b"expect":
            expects = value.lower() == b"100-continue"
        elif lower == b"x-request-id":
            request_id = value
        elif lower == b"max-forwards":
            lines.append(_one_hop_less(method, line, value))
    chunked = _is_chunked(codings)
    http10 = version == b"HTTP/1.0"
    if hosts != 1 and (hosts or not http10):
        raise RefusedError(_bad(f"an HTTP/1.1 request has exactly one Host header, this one has {hosts}"))
    if has_length and chunked:
        raise RefusedError(_bad("content-length and transfer-encoding exclude each other"))
    if chunked and http10:
        raise RefusedError(_bad("HTTP/1.0 has no transfer-encoding"))
    if method == b"CONNECT":
        raise RefusedError(_not_implemented("CONNECT is not supported"))
    authority, target = _origin_form(method, target)
    host = authority or host
    if not _HOST.fullmatch(host):
        raise RefusedError(_bad("the host is not a name or an address with an optional port"))
    named = connection_options(options)
    if drop := named - _PLAIN_OPTIONS:
        lines = [line for line in lines if line.partition(b":")[0].lower() not in drop]
        fields_of_trail = [field for field in fields_of_trail if field[0] not in drop]
    lines.insert(0, b"host: " + host)
    return RequestHead(
        method=method,
        target=target,
        path=_path(target),
        http10=http10,
        keep_alive=not probe.upgrade and b"close" not in named and (not http10 or b"keep-alive" in named),
        headers=headers,
        lines=b"".join(line + b"\r\n" for line in lines),
        has_length=has_length,
        chunked=chunked,
        expects_continue=expects and not http10,
        request_id=request_id,
        drops=bool(drop),
        trail=None if forwarding is None else Trail(host, http10, fields_of_trail),
    )


class HeadProbe:
    """Tells, byte by byte if need be, whether a head is valid HTTP/1.1 so far."""

    __slots__ = ("_parser", "complete", "upgrade")

    def __init__(self) -> None:
        self.complete = False
        self.upgrade = False
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Check the next bytes. Raises RefusedError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.upgrade = True
        except httptools.HttpParserInvalidMethodError as error:
            if _TOKEN.fullmatch(data.partition(b" ")[0]) is not None:
                raise RefusedError(_not_implemented("the method is none that is known here")) from None
            raise RefusedError(_bad(f"invalid HTTP request: {error}")) from None
        except httptools.HttpParserError as error:
            raise RefusedError(_bad(f"invalid HTTP request: {error}")) from None
        if b"\r\n " in data or b"\r\n\t" in data:
            raise RefusedError(_bad("invalid HTTP request: a header line is folded"))

    def on_headers_complete(self) -> None:
        self.complete = True


def _bad(message: str) -> Reply:
    return error_reply(400, message, "bad_http")


def _not_implemented(message: str) -> Reply:
    return error_reply(501, message, "not_implemented")


def _is_chunked(values: list[bytes]) -> bool:
    """Whether the body is chunked, by the values of `Transfer-Encoding` (RFC 9112 section 6.3). Raises RefusedError."""
    if not values:
        return False
    codings = [coding.strip(b" \t") for coding in b",".join(values).lower().split(b",")]
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1:
        raise RefusedError(_bad("chunked is not the last of the transfer codings, or not once"))
    if len(codings) > 1:
        raise RefusedError(_not_implemented("no transfer coding but chunked is supported"))
    return True


def _one_hop_less(method: bytes, line: bytes, value: bytes) -> bytes:
    """The `Max-Forwards` line for the next hop (RFC 9110 section 7.6.2). Raises RefusedError if there is to be none."""
    if method not in (b"OPTIONS", b"TRACE") or not value.isdigit() or len(value) > MAX_DIGITS:
        return line
    hops = int(value)
    if hops == 0:
        raise RefusedError(_not_implemented("by its Max-Forwards the request is for the gateway, which has no answer"))
    return b"max-forwards: %d" % (hops - 1)


def _origin_form(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """The authority that the target names, if it does, and the target for an origin server (RFC 9112 section 3.2)."""
    if b"#" in target:
        raise RefusedError(_bad("the request target has a fragment"))
    if not target.isascii():
        raise RefusedError(_bad("the request target has characters that are not percent-encoded"))
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return b"", target
    scheme, separator, rest = target.partition(b"://")
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    if not separator or scheme.lower() not in (b"http", b"https") or not end:
        raise RefusedError(_bad("the request target is neither a path nor an http URL"))
    path = rest[end:]
    if not path and method == b"OPTIONS":
        return rest[:end], b"*"
    return rest[:end], path if path.startswith(b"/") else b"/" + path


def _path(target: bytes) -> str:
    path = target.partition(b"?")[0]
    if b"%" in path:
        path = unquote_to_bytes(path)
    return path.decode("utf-8", "replace")


_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_HOST = re.compile(rb"(?:[\w.~!$&'()*+;=%-]+|\[[0-9A-Fa-f:.]+\])?(?::[0-9]*)?")
"""RFC 3986 section 3.2.2 without the comma, which nobody has in a name and which joins two headers into one."""
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 section 5.6.2."""
_KEPT = 1024
_MAX_NEW_LINES = 4
_PLAIN_OPTIONS = frozenset((b"close", b"keep-alive", b"upgrade", b""))
_OURS = b"x-steplane-"
"""Headers between gateway and replica: what a client sends under such a name goes no further."""
_HANDLED = HOP_BY_HOP | {b"content-length", b"expect", b"host", b"max-forwards", b"x-request-id"}
