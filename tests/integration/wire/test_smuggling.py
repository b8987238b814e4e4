"""Requests that two parsers could read in two ways: each is refused, or reaches the upstream in one framing only."""

import pytest

from .harness import GET, OK, answering, chunk, post, wire

HOST = b"host: a\r\n"
INNER = b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
ABC = b"3\r\nabc\r\n0\r\n\r\n"


def with_headers(*lines: bytes, body: bytes = ABC) -> bytes:
    return b"POST / HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def chunked(body: bytes) -> bytes:
    return with_headers(b"transfer-encoding: chunked", body=body)


REFUSED_FRAMING = [
    with_headers(b"content-length: 5", b"transfer-encoding: chunked"),
    with_headers(b"transfer-encoding: chunked", b"content-length: 5"),
    with_headers(b"transfer-encoding: chunked", b"Content-Length: 0"),
    with_headers(b"content-length: 3", b"content-length: 3"),
    with_headers(b"content-length: 3", b"content-length: 4"),
    with_headers(b"content-length: 3", b"CONTENT-LENGTH: 40"),
    with_headers(b"content-length: 3, 3"),
    with_headers(b"content-length: 3, 4"),
    with_headers(b"content-length: +3"),
    with_headers(b"content-length: -3"),
    with_headers(b"content-length: 0x3"),
    with_headers(b"content-length: 3 3"),
    with_headers(b"content-length: 3;"),
    with_headers(b"content-length: \xb3"),
    with_headers(b"content-length: 3_0"),
    with_headers(b"content-length:"),
    with_headers(b"content-length: "),
    with_headers(b"content-length: 18446744073709551617"),
    with_headers(b"content-length: 99999999999999999999999999"),
    with_headers(b"content-length : 3"),
    with_headers(b"content-length\t: 3"),
    with_headers(b" content-length: 3"),
    with_headers(b"transfer-encoding : chunked"),
    with_headers(b"transfer-encoding: chunked, identity"),
    with_headers(b"transfer-encoding: identity"),
    with_headers(b"transfer-encoding: identity, chunked"),
    with_headers(b"transfer-encoding: gzip, chunked"),
    with_headers(b"transfer-encoding: gzip"),
    with_headers(b"transfer-encoding: chunked", b"transfer-encoding: chunked"),
    with_headers(b"transfer-encoding: identity", b"transfer-encoding: chunked"),
    with_headers(b"transfer-encoding: chunked", b"transfer-encoding: identity"),
    with_headers(b"transfer-encoding: xchunked"),
    with_headers(b"transfer-encoding: chunkedx"),
    with_headers(b"transfer-encoding: chunked;q=1"),
    with_headers(b'transfer-encoding: "chunked"'),
    with_headers(b"transfer-encoding: \x0bchunked"),
    with_headers(b"transfer-encoding: chunked,"),
    with_headers(b"transfer-encoding: ,chunked"),
    with_headers(b"transfer-encoding:"),
    with_headers(b"transfer-encoding:\r\n chunked"),
    b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + ABC,
]

REFUSED_LINES = [
    with_headers(b"x: a\r\n b"),
    with_headers(b"x: a\r\n\tb"),
    with_headers(b"x: a\r\n content-length: 3"),
    with_headers(b"x: a\r\n ", body=INNER),
    with_headers(b"x: a\ncontent-length: 3"),
    with_headers(b"x: a\rcontent-length: 3"),
    with_headers(b"x: a\r\rb"),
    with_headers(b"x: a\0b"),
    with_headers(b"x\0: a"),
    with_headers(b"x: \x7f"),
    with_headers(b"x y: a"),
    with_headers(b"x(y): a"),
    with_headers(b": a"),
    with_headers(b"x"),
    with_headers(b"\xe4: a"),
    b"GET / HTTP/1.1\nhost: a\n\n",
    b"GET / HTTP/1.1\r\nhost: a\n\r\n",
    b"GET / HTTP/1.1\r\n host: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\n\n" + INNER,
]

REFUSED_REQUEST_LINES = [
    b"GET / HTTP/1.1 \r\nhost: a\r\n\r\n",
    b"GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /  HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET\t/ HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /\x7f HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /\xe4 HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /?\xff HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /#fragment HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /?q#fragment HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET x HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET * HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET http:///x HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET http://u@b/x HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET a:80 HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /\r\nhost: a\r\n\r\n",
    b"GET / HTTP/1.2\r\nhost: a\r\n\r\n",
    b"GET / HTTP/11\r\nhost: a\r\n\r\n",
    b"GET / HTTP/1.1x\r\nhost: a\r\n\r\n",
    b"GET / http/1.1\r\nhost: a\r\n\r\n",
    b"get / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"FOO / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nhost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
]

REFUSED_HOSTS = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nx: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nHOST: b\r\n\r\n",
    b"GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a, b\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: u@a\r\n\r\n",
]

REFUSED_CHUNKS = [
    chunked(b"+3\r\nabc\r\n0\r\n\r\n"),
    chunked(b"-3\r\nabc\r\n0\r\n\r\n"),
    chunked(b"0x3\r\nabc\r\n0\r\n\r\n"),
    chunked(b" 3\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3 \r\nabc\r\n0\r\n\r\n"),
    chunked(b"3\nabc\r\n0\r\n\r\n"),
    chunked(b"3\rabc\r\n0\r\n\r\n"),
    chunked(b"3\r\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3\r\nabc\n0\r\n\r\n"),
    chunked(b"3\r\nabc\r0\r\n\r\n"),
    chunked(b"3\r\nabcd\r\n0\r\n\r\n"),
    chunked(b"3\r\nab\r\n0\r\n\r\n"),
    chunked(b"\r\nabc\r\n0\r\n\r\n"),
    chunked(b";a=b\r\nabc\r\n0\r\n\r\n"),
    chunked(b"g\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3_0\r\nabc\r\n0\r\n\r\n"),
    chunked(b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    chunked(b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3;a\rb\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3;a\0b\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\n\n" + INNER),
    chunked(b"3\r\nabc\r\n0\r\nx: a\nb\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\nno colon\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\n" + INNER + b"\r\n"),
    chunked(b"3\r\nabc\r\n0\r\nx : a\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\nx: a\r\n folded\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\nx: \0\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\n\r\r\n"),
    chunked(b"3;" + b"a" * 70_000 + b"\r\nabc\r\n0\r\n\r\n"),
    chunked(b"3\r\nabc\r\n0\r\n" + b"x: y\r\n" * 20_000 + b"\r\n"),
]

ALL_REFUSED = [
    *((case, "framing") for case in REFUSED_FRAMING),
    *((case, "line") for case in REFUSED_LINES),
    *((case, "request line") for case in REFUSED_REQUEST_LINES),
    *((case, "host") for case in REFUSED_HOSTS),
    *((case, "chunk") for case in REFUSED_CHUNKS),
]
BY_NAME = pytest.mark.parametrize(
    "attack", [case for case, _ in ALL_REFUSED], ids=[f"{name}-{count}" for count, (_, name) in enumerate(ALL_REFUSED)]
)


@BY_NAME
async def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_closed(attack: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(attack + INNER)
        message = await client.response()
        assert message.status in (400, 431, 501)
        assert message.header(b"connection") == b"close"
        assert b'"type":"invalid_request_error"' in message.body or message.status == 501
        await client.closed()
        assert gateway.requests == []


@BY_NAME
async def test_it_is_refused_as_well_when_it_comes_byte_by_byte_or_after_good_requests(attack: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.ask(post(b"abc"))
        await client.ask(with_headers(b"content-length: 3", body=b"abc"))
        await client.ask(with_headers(b"transfer-encoding: chunked"))
        end = min(len(attack), 200)
        try:
            for at in range(end):
                await client.send(attack[at : at + 1])
                await client.turn()
            await client.send(attack[end:] + INNER)
        except ConnectionError:
            pass  # it was refused before all of it was sent
        assert (await client.response()).status in (400, 431, 501)
        await client.closed()
        assert len(gateway.requests) == 3


@pytest.mark.parametrize("length", [b"", b" "])
async def test_a_length_is_not_remembered_from_another_request(length: bytes) -> None:
    """Heads are remembered without the digits of their length: an empty one must not pass for the one seen before."""
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            await client.ask(with_headers(b"content-length:%b3" % length, body=b"abc"))
        await client.send(with_headers(b"content-length:%b" % length, body=b"abc"))
        assert (await client.response()).status == 400
        await client.closed()


@pytest.mark.parametrize("attack", [case for case in REFUSED_CHUNKS if len(case) < 1000])
async def test_a_bad_chunk_of_a_streamed_body_ends_the_exchange_unfinished(attack: bytes) -> None:
    """The upstream may have seen the beginning; it must never see an end."""
    async with wire(answering(OK), buffering=False) as gateway:
        client = await gateway.client()
        await client.send(attack + INNER)
        assert (await client.response()).status == 400
        await client.closed()
        await gateway.finished(len(gateway.handler.handled))
        assert gateway.requests == []


BODY = chunk(b"x") + b"0\r\n\r\n"
ONE_READING = [
    (with_headers(b"content-length: %d" % len(INNER), body=INNER), INNER),
    (with_headers(b"content-length: %d" % len(BODY), body=BODY), BODY),
    (with_headers(b"transfer-encoding: chunked", body=chunk(INNER) + b"0\r\n\r\n"), INNER),
    (with_headers(b"x-content-length: 5", b"content-length: 3", body=b"abc"), b"abc"),
    (with_headers(b"x: content-length: 9", b"content-length: 3", body=b"abc"), b"abc"),
    (with_headers(b"content_length: 9", b"transfer_encoding: chunked", b"content-length: 3", body=b"abc"), b"abc"),
    (with_headers(b"transfer-encodin: chunked", b"content-length: 3", body=b"abc"), b"abc"),
]


@pytest.mark.parametrize(("request_bytes", "body"), ONE_READING)
@pytest.mark.parametrize("buffering", [True, False])
async def test_bodies_that_look_like_requests_stay_bodies(request_bytes: bytes, body: bytes, buffering: bool) -> None:
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(request_bytes + GET)
        assert [(await client.response()).body for _ in range(2)] == [b"ok", b"ok"]
        assert [(message.start, message.body) for message in gateway.requests] == [
            (b"POST / HTTP/1.1", body),
            (b"GET / HTTP/1.1", b""),
        ]


@pytest.mark.parametrize("target", [b"a:443", b"/", b"http://a/"])
async def test_connect_is_refused(target: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        message = await client.ask(b"CONNECT %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)
        assert message.status in (400, 501)
        await client.closed()
        assert gateway.requests == []


@pytest.mark.parametrize(
    ("codings", "status"),
    [
        ([b"chunked, identity"], 400),
        ([b"chunked", b"gzip"], 400),
        ([b"gzip"], 400),
        ([b"chunked, chunked"], 400),
        ([b"chunked", b"chunked"], 400),
        ([b"gzip, chunked"], 501),
        ([b"gzip", b"chunked"], 501),
    ],
)
async def test_a_body_without_a_certain_end_is_a_bad_request_and_an_unknown_coding_is_not_implemented(
    codings: list[bytes], status: int
) -> None:
    """RFC 9112 sections 6.1 and 6.3."""
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        lines = [b"transfer-encoding: " + coding for coding in codings]
        assert (await client.ask(with_headers(*lines))).status == status
        await client.closed()


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
async def test_other_versions_are_refused(version: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(b"GET / HTTP/%b\r\nhost: a\r\n\r\n" % version)).status == 505
        await client.closed()


async def test_the_preface_of_http_2_is_refused() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status in (400, 505)
        await client.closed()


async def test_empty_lines_before_a_request_are_ignored() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(b"\r\n\r\n" + GET + b"\r\n")
        assert (await client.response()).body == b"ok"
        assert (await client.ask(b"\r\n" + GET)).body == b"ok"
