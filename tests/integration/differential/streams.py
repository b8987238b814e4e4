"""What a client may send: valid requests, requests that two parsers may read in two ways, and noise.

A stream is put together from raw pieces, so that everything can be wrong in it, mostly one thing at a time: with more,
every parser gives up at the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

ENDING = b"\r\n\r\n" + b"\0" * 64 + b"\r\n\r\n"
"""No parser goes on behind this, wherever it stands, unless it waits for more than this of a body."""

_INNER = b"GET /inner HTTP/1.1\r\nhost: h\r\n\r\n"
_INNER_POST = b"POST /inner HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"

_METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD"])
_ODD_METHODS = st.sampled_from([b"get", b"FOO", b"CONNECT", b"TRACE", b"G\tET", b"", b"GET\0", b"PRI", b"POST,GET"])
_TARGETS = st.sampled_from(
    [
        b"/",
        b"/a/b?x=1&y=%20",
        b"/v1/completions",
        b"/v1/chat/completions?x",
        b"/a%2fb",
        b"/a//b/../c/.",
        b"//a/b",
        b"/?",
        b"/a?b?c",
        b"http://h/x",
        b"http://h",
    ]
)
_ODD_TARGETS = st.sampled_from(
    [
        b"*",
        b"a",
        b"",
        b"h:443",
        b"/x#f",
        b"/a b",
        b"/\xff\xfe",
        b"/\x7f",
        b"/\0",
        b"/\t",
        b"/%00",
        b"/%zz",
        b"http://other/x",
        b"https://h:80/x",
        b"HTTP://H/x",
        b"http://u:p@h/x",
        b"http:///x",
        b"http:/x",
        b"ftp://h/x",
        b"http://h:port/",
        b"http://h?q",
        b"http://h\\@evil/",
        b"/http://evil/",
        b"/\\evil",
        b"/x HTTP/1.1\r\nx: y",
        b"/" + b"a" * 9000,
    ]
)
_VERSIONS = st.sampled_from([b"HTTP/1.1"] * 9 + [b"HTTP/1.0"])
_ODD_VERSIONS = st.sampled_from(
    [b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.1 ", b"", b"HTTP/1.10", b"HTTP/01.1", b"HTTP/1,1"]
)
_FIELDS = st.sampled_from(
    [
        b"x-a: 1",
        b"X-B:2",
        b"x-c:\t3 \t",
        b"x-empty:",
        b"accept: */*",
        b"cookie: a=b; c=d",
        b"x-list: 1, 2",
        b"x-a: 2",
        b"connection: keep-alive",
        b"connection: x-a, keep-alive",
        b"connection: close",
        b"keep-alive: timeout=5",
        b"te: trailers",
        b"expect: 100-continue",
        b"upgrade: h2c",
        b"content-type: application/json",
        b"x-forwarded-for: 1.2.3.4",
        b"forwarded: for=1.2.3.4",
        b"x_under: 1",
        b"x-high: \xe4\xff",
        b"authorization: Bearer secret",
    ]
)
_ODD_FIELDS = st.sampled_from(
    [
        b"x-a : 1",
        b"x a: 1",
        b" x-a: 1",
        b"x-a: 1\r\n folded",
        b"x-a: 1\r\n\tfolded",
        b"x-a:\r\n 1",
        b"x-a",
        b": 1",
        b"x-a: 1\rx-b: 2",
        b"x-a: 1\nx-b: 2",
        b"x-a: 1\n\nGET /inner HTTP/1.1",
        b"x-a: \0",
        b"x-a: \x01\x1f",
        b"x-a: \x7f",
        b"x\xe4: 1",
        b'x"a": 1',
        b"x-a\0: 1",
        b"host: other",
        b"host: h",
        b"Connection: content-length",
        b"connection: transfer-encoding",
        b"connection: host",
        b"connection: close, upgrade\r\nupgrade: websocket",
        b"content-length: 0",
        b"content-length: 5",
        b"content_length: 5",
        b"transfer_encoding: chunked",
        b"content-length:\r\n 5",
        b"transfer-encoding: chunked",
        b"x: " + b"y" * 9000,
        *(b"content-length: 5\r\nx%d: y" % at for at in range(2)),
    ]
)
_HOSTS = st.sampled_from([b"host: h"] * 9 + [b"Host: h:80"])
_ODD_HOSTS = st.sampled_from(
    [
        b"",
        b"host:",
        b"host: a b",
        b"host: h, i",
        b"host: h:99999999",
        b"host: [::1]:80",
        b"host: u@h",
        b"host: h/x",
        b"host: h\r\nhost: h",
        b"host: h\r\nhost: i",
        b"host : h",
        b"host: h\\i",
        b"host: \xe4",
    ]
)
_BODIES = st.one_of(
    st.sampled_from(
        [
            b"",
            b"x",
            b'{"model": "m", "prompt": "hi"}',
            b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
            _INNER,
            _INNER_POST,
            b"0\r\n\r\n",
            b"5\r\nhello\r\n0\r\n\r\n" + _INNER,
            b"\r\n\r\n",
            b"a" * 5000,
        ]
    ),
    st.binary(max_size=60),
)
_CODINGS = st.sampled_from(
    [
        b"chunked, identity",
        b"identity",
        b"identity, chunked",
        b"gzip, chunked",
        b"chunked, chunked",
        b"xchunked",
        b"chunked;q=1",
        b"CHUNKED",
        b"chunKed ",
        b"\x0bchunked",
        b"chunked\x0b",
        b"\x0cchunked",
        b'"chunked"',
        b"chunked,",
        b",chunked",
        b"",
        b"\r\n chunked",
        b"chunked\r\nTransfer-Encoding: identity",
        b"identity\r\nTransfer-Encoding: chunked",
        b"chunked\r\ntransfer-encoding: chunked",
    ]
)
_ODD_SIZES: list[Callable[[int], bytes]] = [
    lambda size: b"+%x" % size,
    lambda size: b"-%x" % size,
    lambda size: b"0x%x" % size,
    lambda size: b" %x" % size,
    lambda size: b"%x " % size,
    lambda size: b"%x;a\nb" % size,
    lambda size: b"%x;a\rb" % size,
    lambda size: b"%x;\0" % size,
    lambda size: b"%x;" % size + b"a" * 5000,
    lambda size: b"%x" % (size + 1),
    lambda size: b"%x" % max(size - 1, 0),
    lambda size: b"%x" % (size + (1 << 32)),
    lambda size: b"%x" % (size + (1 << 64)),
    lambda size: b"%d.0" % size,
    lambda size: b"%xg" % size,
    lambda size: b"%x_0" % size,
    lambda size: b"",
    lambda size: b"000000000000000000000%x" % size,
    lambda size: b"%x\r" % size,
]
_SIZES: list[Callable[[int], bytes]] = [
    lambda size: b"%x" % size,
    lambda size: b"%X" % size,
    lambda size: b"00%x" % size,
    lambda size: b"%x;a" % size,
    lambda size: b'%x;a="b;c"' % size,
    lambda size: b"%x\t;a" % size,
]
_ODD_LENGTHS: list[Callable[[int], bytes]] = [
    lambda size: b"+%d" % size,
    lambda size: b"-%d" % size,
    lambda size: b"0x%x" % size,
    lambda size: b"%d, %d" % (size, size),
    lambda size: b"%d,%d" % (size, size + 1),
    lambda size: b"%d 0" % size,
    lambda size: b"%d;" % size,
    lambda size: b"%d.0" % size,
    lambda size: b"1e1",
    lambda size: b"",
    lambda size: b"%d" % (size + (1 << 64)),
    lambda size: b"%d" % (size + 1),
    lambda size: b"%d" % max(size - 1, 0),
    lambda size: b"%d" % max(size - 7, 0),
    lambda size: b"%d" % (size + 9),
    lambda size: b"0000%d" % size,
    lambda size: b"\x0b%d" % size,
    lambda size: b"%d\0" % size,
    lambda size: b"%d\r\ncontent-length: %d" % (size, size),
    lambda size: b"%d\r\ncontent-length: 0" % size,
    lambda size: b"0\r\ncontent-length: %d" % size,
    lambda size: b"%d\r\ntransfer-encoding: chunked" % size,
    lambda size: b"%d\r\ntransfer-encoding: identity" % size,
]
_LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\r\n", b"\n\r", b"\r\n\r\n", b"\x85", b" \r\n", b"\0\r\n"])
_TRAILERS = st.sampled_from([b"", b"", b"x-trailer: 1\r\n"])
_ODD_TRAILERS = st.sampled_from(
    [
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"host: evil\r\n",
        b"x: 1\r\n folded\r\n",
        b"no colon\r\n",
        b"x: 1\n",
        b"x: \0\r\n",
        b"\n",
        b"\r",
        _INNER,
    ]
)
_NOISE = st.one_of(
    st.sampled_from([b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"0", b"\t", b"\r\n\r\n", b"\x80", _INNER]),
    st.binary(min_size=1, max_size=3),
)


@dataclass(frozen=True, slots=True)
class Stream:
    """The bytes of one connection.

    requests:   how many they are, where nothing is wrong with any; else None.
    cuts:       places at which they are sent apart.
    """

    data: bytes
    requests: int | None
    cuts: tuple[int, ...]

    @property
    def parts(self) -> list[bytes]:
        """The bytes as they are sent."""
        places = sorted({place % (len(self.data) + 1) for place in self.cuts})
        return [self.data[a:b] for a, b in zip([0, *places], [*places, len(self.data)], strict=True) if a < b]


@st.composite
def valid(draw: st.DrawFn) -> bytes:
    """One request with nothing wrong in it, that leaves the connection open."""
    return _spelled(draw, "")


_WRONG = st.sampled_from(
    [
        "method",
        "target",
        "version",
        "field",
        "field",
        "host",
        "length",
        "length",
        "coding",
        "chunk",
        "chunk",
        "trailer",
        "end of line",
        "blank",
    ]
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """One request with one thing, or two, wrong in it."""
    wrong = {draw(_WRONG)}
    if draw(st.integers(0, 3)) == 0:
        wrong.add(draw(_WRONG))
    return _spelled(draw, *wrong)


def _spelled(draw: st.DrawFn, *wrong: str) -> bytes:
    method = draw(_ODD_METHODS if "method" in wrong else _METHODS)
    target = draw(_ODD_TARGETS if "target" in wrong else _TARGETS)
    version = draw(_ODD_VERSIONS if "version" in wrong else _VERSIONS if any(wrong) else st.just(b"HTTP/1.1"))
    fields = draw(st.lists(_FIELDS, max_size=4))
    if not any(wrong):  # closing, or asking for another protocol, would end the stream
        fields = [each for each in fields if each not in (b"connection: close", b"upgrade: h2c")]
    fields.append(draw(_ODD_HOSTS if "host" in wrong else _HOSTS))
    if target.lower().startswith((b"http:", b"https:")) and "host" not in wrong and "target" not in wrong:
        fields[-1] = b"host: h"
    framing, coded = framed(draw, wrong)
    fields += framing
    if "field" in wrong:
        fields.insert(draw(st.integers(0, len(fields))), draw(_ODD_FIELDS))
    lines = [b"%b %b %b" % (method, target, version), *(each for each in fields if each or "host" not in wrong)]
    ends = [b"\r\n"] * (len(lines) + 1)
    if "end of line" in wrong:
        ends[draw(st.integers(0, len(lines)))] = draw(_LINE_ENDS)
    lines.append(b" " if "blank" in wrong else b"")
    return b"".join(line + end for line, end in zip(lines, ends, strict=True)) + coded


def framed(draw: st.DrawFn, wrong: tuple[str, ...]) -> tuple[list[bytes], bytes]:
    """The header lines that frame a body, and the body in its coding, with this wrong in them."""
    body = draw(_BODIES)
    form = "length" if "length" in wrong else "chunked" if {"coding", "chunk", "trailer"} & {*wrong} else ""
    form = form or draw(st.sampled_from(["none", "length", "length", "chunked"]))
    if form == "none":
        return [], b""
    if form == "length":
        length = draw(st.sampled_from(_ODD_LENGTHS))(len(body)) if "length" in wrong else b"%d" % len(body)
        name = draw(st.sampled_from([b"content-length: ", b"Content-Length: ", b"CONTENT-LENGTH:"]))
        return [name + length], body
    coding = draw(_CODINGS) if "coding" in wrong else b"chunked"
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if a < b]
    coded = [b"%b\r\n%b\r\n" % (draw(st.sampled_from(_SIZES))(len(piece)), piece) for piece in pieces]
    if "chunk" in wrong and pieces:
        at = draw(st.integers(0, len(pieces) - 1))
        size = draw(st.sampled_from(_ODD_SIZES))(len(pieces[at]))
        start, end = draw(
            st.sampled_from([(b"\r\n", b"\r\n")] * 4 + [(b"\n", b"\r\n"), (b"\r\n", b"\n"), (b"\r\n", b"")])
        )
        coded[at] = size + start + pieces[at] + end
    last = draw(st.sampled_from([b"0", b"00", b"0;x"]))
    if "chunk" in wrong and draw(st.integers(0, 3)) == 0:
        last = draw(st.sampled_from([b"0 ", b"-0", b"0x0", b"0_", b""]))
    trailer = draw(_ODD_TRAILERS if "trailer" in wrong else _TRAILERS)
    return [b"Transfer-Encoding: " + coding], b"".join(coded) + last + b"\r\n" + trailer + b"\r\n"


_CUTS = st.one_of(st.just([]), st.lists(st.integers(0, 10_000), max_size=8)).map(tuple)


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Pipelined requests, cut anywhere; in most streams something is wrong, and behind it comes more."""
    kind = draw(st.sampled_from(["valid", "broken", "broken", "broken", "noisy"]))
    cuts = draw(_CUTS)
    if kind == "valid":
        requests = draw(st.lists(valid(), min_size=1, max_size=4))
        return Stream(b"".join(requests), len(requests), cuts)
    before = draw(st.lists(valid(), max_size=2))
    after = draw(st.lists(valid(), min_size=1, max_size=2))
    if kind == "broken":
        data = b"".join([*before, draw(broken()), *after])
    else:
        data = b"".join([*before, *after])
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(data)))
            data = data[:at] + draw(st.one_of(_NOISE, st.just(b""))) + data[at + draw(st.integers(0, 2)) :]
    if draw(st.integers(0, 40)) == 17:  # seldom: that a stream ends too early is seen by a time limit only
        return Stream(data[: draw(st.integers(0, len(data)))], None, cuts)
    return Stream(data + ENDING, None, cuts)
