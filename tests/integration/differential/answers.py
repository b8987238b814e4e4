"""What a replica may answer: valid responses, responses that two parsers may read in two ways, and ends of all kinds.

As in streams.py, mostly one thing at a time is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from .streams import framed

_STATUSES = st.sampled_from(
    [
        *[b"200 OK"] * 3,
        b"200",
        b"201 Created",
        b"204 No Content",
        b"205 Reset Content",
        b"206 Partial Content",
        b"301 Moved",
        b"304 Not Modified",
        b"404 Not Found",
        b"599 Odd",
        b"600 Odder",
    ]
)
_ODD_FIRST_LINES = st.sampled_from(
    [
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 200\tOK",
        b" HTTP/1.1 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/2 200",
        b"HTTP/2.0 200 OK",
        b"HTTP/0.9 200 OK",
        b"HTTP/1.2 200 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 -20 OK",
        b"HTTP/1.1 000 OK",
        b"HTTP/1.1 099 OK",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 abc OK",
        b"HTTP/1.1 200 O\0K",
        b"HTTP/1.1 200 O\rK",
        b"HTTP/1.1 200 O\nK",
        b"HTTP/1.1",
        b"ICY 200 OK",
        b"200 OK",
        b"",
    ]
)
_FIELDS = st.sampled_from(
    [
        b"x-a: 1",
        b"X-B:2",
        b"x-c:\t3 \t",
        b"x-empty:",
        b"set-cookie: a=b",
        b"set-cookie: c=d",
        b"date: Mon, 30 Nov 2026 01:00:00 GMT",
        b"content-type: text/event-stream",
        b"content-type: application/json",
        b"content-encoding: gzip",
        b"connection: close",
        b"connection: keep-alive",
        b"connection: x-a",
        b"keep-alive: timeout=5",
        b"upgrade: h2c",
        b"trailer: x-t",
        b"x-high: \xe4\xff",
        b"x-request-id: of the replica",
    ]
)
_ODD_FIELDS = st.sampled_from(
    [
        b"x-a : 1",
        b"x a: 1",
        b" x-a: 1",
        b"x-a: 1\r\n folded",
        b"x-a",
        b": 1",
        b"x-a: 1\rx-b: 2",
        b"x-a: 1\nx-b: 2",
        b"x-a: \0",
        b"x-a: 1\r\n\r\nHTTP/1.1 200 OK",
        b"transfer-encoding: gzip",
        b"transfer-encoding: identity",
        b"content-length: 3",
        b"connection: content-length, transfer-encoding",
        b"connection: upgrade\r\nupgrade: websocket",
    ]
)
_INTERIM = st.sampled_from(
    [b""] * 6
    + [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",
    ]
)
_ODD_INTERIM = st.sampled_from(
    [
        b"HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nx: a\r\n b\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\n\n",
        b"\r\n",
    ]
)
_EXCESS = st.sampled_from(
    [b"\r\n", b"x", b"\0", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx-evil: 1\r\n\r\nevil"]
)
_ASKED = st.sampled_from(
    [(b"GET", b"1.1")] * 4 + [(b"GET", b"1.0"), (b"HEAD", b"1.1"), (b"HEAD", b"1.0"), (b"POST", b"1.1")]
)
_WRONG = st.sampled_from(
    [
        "first line",
        *["field", "length", "chunk", "truncated"] * 2,
        "interim",
        "coding",
        "trailer",
        "excess",
        "noise",
        "reset",
    ]
)


@dataclass(frozen=True, slots=True)
class Answered:
    """One request and what its replica does.

    method, version: of the request.
    data:            what the replica sends, cut at `cuts`.
    end:             what it does then: `keep`, `close` or `reset`.
    good:            nothing is wrong with any of it.
    """

    method: bytes
    version: bytes
    data: bytes
    cuts: tuple[int, ...]
    end: str
    good: bool

    @property
    def parts(self) -> list[bytes]:
        """The bytes as they are sent."""
        places = sorted({place % (len(self.data) + 1) for place in self.cuts})
        return [self.data[a:b] for a, b in zip([0, *places], [*places, len(self.data)], strict=True) if a < b]


@st.composite
def answers(draw: st.DrawFn) -> Answered:
    """One exchange, in most of which one thing is wrong."""
    method, version = draw(_ASKED)
    wrong = {draw(_WRONG)} if draw(st.integers(0, 3)) else set()
    if wrong and draw(st.integers(0, 3)) == 0:
        wrong.add(draw(_WRONG))
    first = b"HTTP/%b %b" % (draw(st.sampled_from([b"1.1"] * 5 + [b"1.0"])), draw(_STATUSES))
    if "first line" in wrong:
        first = draw(_ODD_FIRST_LINES)
    fields = draw(st.lists(_FIELDS, max_size=4))
    framing, coded = framed(draw, tuple(wrong & {"length", "coding", "chunk", "trailer"}))
    fields += framing
    if "field" in wrong:
        fields.insert(draw(st.integers(0, len(fields))), draw(_ODD_FIELDS))
    bodiless = method == b"HEAD" or first[9:12] in (b"204", b"304")
    body = b"" if bodiless else coded or (draw(st.binary(max_size=40)) if not framing else b"")
    data = draw(_ODD_INTERIM if "interim" in wrong else _INTERIM)
    data += b"".join(line + b"\r\n" for line in [first, *fields]) + b"\r\n" + body
    until_close = not framing and not bodiless
    end = "close" if until_close else draw(st.sampled_from(["keep", "keep", "close"]))
    if "excess" in wrong:
        data += draw(_EXCESS)
    if "noise" in wrong:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    if "truncated" in wrong:
        data, end = data[: draw(st.integers(0, len(data)))], "close"
    if wrong and end == "keep":
        end = "close"  # what is wrong may be waited for
    if "reset" in wrong:
        end = "reset"
    cuts = draw(st.lists(st.integers(0, 10_000), max_size=6)) if "excess" not in wrong else []
    return Answered(method, version, data, tuple(cuts), end, not wrong)
