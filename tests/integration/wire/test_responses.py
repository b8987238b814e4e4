"""What the client gets of a response: every framing, every way its bytes can be cut into reads, and its headers."""

import contextlib

import pytest

from .harness import GET, OK, Script, Served, answering, chunk, wire

HEAD_200 = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD_200 + b"transfer-encoding: chunked\r\n\r\n"


def pieces(*parts: bytes, close: bool = False, reset: bool = False) -> Script:
    """Answer each request with a response in pieces, each sent when the one before it is on its way."""

    async def script(served: Served) -> None:
        while True:
            await served.request()
            for part in parts:
                await served.send(part)
            if reset:
                served.reset()
            if close or reset:
                return

    return script


# --- framing

KEPT: list[tuple[str, bytes, bytes]] = [
    ("length", HEAD_200 + b"content-length: 5\r\n\r\nhello", b"hello"),
    ("no body", HEAD_200 + b"content-length: 0\r\n\r\n", b""),
    ("chunked", CHUNKED + chunk(b"hello") + chunk(b"world") + b"0\r\n\r\n", b"helloworld"),
    ("empty chunked", CHUNKED + b"0\r\n\r\n", b""),
    ("extensions", CHUNKED + b"5;a=b\r\nhello\r\n0;c\r\n\r\n", b"hello"),
    ("white space", CHUNKED + b"5\t;a\r\nhello\r\n5 ;b\r\nworld\r\n0 ;c\r\n\r\n", b"helloworld"),
    ("extension later", CHUNKED + chunk(b"hello") + b"5;a=b\r\nworld\r\n" + chunk(b"!") + b"0\r\n\r\n", b"helloworld!"),
    ("trailers", CHUNKED + chunk(b"hello") + b"0\r\nx-check: 1\r\nx-more: 2\r\n\r\n", b"hello"),
    ("100 before", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    ("103 before", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK, b"ok"),
    ("two interim", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK, b"ok"),
    ("204", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ("304", b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", b""),
    ("304 with a length", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 500\r\n\r\n", b""),
    ("unknown status", b"HTTP/1.1 599 \r\ncontent-length: 2\r\n\r\nok", b"ok"),
    ("no reason", b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
    ("odd spelling", b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:2\r\n\r\nok", b"ok"),
    (
        "body like a head",
        HEAD_200 + b"content-length: 23\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\n\r\nabcd",
    ),
]


@pytest.mark.parametrize(("response", "body"), [case[1:] for case in KEPT], ids=[case[0] for case in KEPT])
async def test_a_framed_response_arrives_and_both_connections_are_kept(response: bytes, body: bytes) -> None:
    async with wire(answering(response)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            message = await client.ask(GET)
            assert message.body == body
        assert gateway.connections_made == 1
        assert message.status == int(response.rpartition(b"HTTP/1.1 ")[2][:3]) or b"HTTP/1.1" in body


async def test_chunks_extensions_and_trailers_pass_as_they_came() -> None:
    body = b"5;a=b\r\nhello\r\n" + chunk(b" ") + b"0;c\r\nx-check: 1\r\n\r\n"
    async with wire(answering(CHUNKED + body)) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        assert await client.read(len(body)) == body


async def test_trailers_do_not_become_headers() -> None:
    response = CHUNKED + chunk(b"x") + b"0\r\nx-trailer: 1\r\ncontent-type: text/event-stream\r\n\r\n"
    async with wire(answering(response, OK)) as gateway:
        client = await gateway.client()
        assert [name for name, _ in (await client.ask(GET)).headers] == [b"transfer-encoding"]
        assert [name for name, _ in (await client.ask(GET)).headers] == [b"content-length"]


CUT = [
    HEAD_200 + b"x-a: 1\r\ncontent-length: 5\r\n\r\nhello",
    CHUNKED + b"5;x\r\nhello\r\n" + chunk(b"w") + b"0\r\nx-t: 1\r\n\r\n",
    CHUNKED + chunk(b"hello") + b"1;x\r\nw\r\n" + chunk(b"orld") + b"0\r\nx-t: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
]


@pytest.mark.parametrize("response", CUT, ids=["length", "chunked", "chunked later", "interim", "204"])
async def test_wherever_a_response_is_cut_the_client_gets_the_same_bytes(response: bytes) -> None:
    async def script(served: Served) -> None:
        at = 0
        while True:
            await served.request()
            for part in (
                (response[:at], response[at:]) if at < len(response) else [response[i : i + 1] for i in range(at)]
            ):
                await served.send(part)
                await served.turn()
            at += 1

    async with wire(answering(response), script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        whole = await client.response_bytes()
        gateway.handler.upstreams = gateway.handler.upstreams[1:]
        for _ in range(len(response) + 1):
            await client.send(GET)
            assert await client.read(len(whole)) == whole


async def test_a_body_that_ends_with_the_connection_is_chunked_for_the_client() -> None:
    async with wire(pieces(HEAD_200 + b"x: 1\r\n\r\n", b"hel", b"lo", close=True)) as gateway:
        client = await gateway.client()
        for count in (1, 2):
            message = await client.ask(GET)
            assert (message.body, message.header(b"transfer-encoding")) == (b"hello", b"chunked")
            assert gateway.connections_made == count
        assert len(gateway.server.connections) == 1


async def test_a_body_that_should_end_with_the_connection_and_is_reset_is_visibly_incomplete() -> None:
    async with wire(pieces(HEAD_200 + b"\r\n", b"hello", reset=True)) as gateway:
        client = await gateway.client()
        await client.send(GET)
        with contextlib.suppress(ConnectionError):
            assert not (await client.rest()).endswith(b"0\r\n\r\n")


# --- HEAD, 204, 304


@pytest.mark.parametrize("framing", [b"content-length: 500\r\n", b"transfer-encoding: chunked\r\n", b""])
async def test_the_response_to_head_has_headers_only(framing: bytes) -> None:
    async with wire(answering(HEAD_200 + framing + b"\r\n", OK)) as gateway:
        client = await gateway.client()
        message = await client.ask(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", b"HEAD")
        assert message.values(b"content-length") == ([b"500"] if b"length" in framing else [])
        assert (await client.ask(GET)).body in (b"ok", b"")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 304), (b"GET", 204)])
@pytest.mark.parametrize("framing", [b"content-length: 5", b"transfer-encoding: chunked"])
async def test_framing_without_a_body_is_told_to_whom_it_may_be_told(
    framing: bytes, method: bytes, status: int, version: bytes
) -> None:
    """RFC 9112 section 6: none in a 204, and no transfer coding to HTTP/1.0."""
    async with wire(answering(b"HTTP/1.1 %d X\r\n%b\r\n\r\n" % (status, framing))) as gateway:
        client = await gateway.client()
        message = await client.ask(b"%b / HTTP/%b\r\nhost: a\r\n\r\n" % (method, version), method)
        told = [b"%b: %b" % line for line in message.headers if line[0] != b"connection"]
        withheld = status == 204 or (version == b"1.0" and framing.startswith(b"transfer"))
        assert told == ([] if withheld else [framing])


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("framing", [b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"])
async def test_a_body_where_none_may_be_does_not_shift_the_next_response(status: bytes, framing: bytes) -> None:
    first = b"HTTP/1.1 %b\r\n%b\r\n" % (status, framing)
    async with wire(answering(first + b"hello", OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).body == b""
        if len(gateway.server.connections):
            assert (await client.ask(GET)).status in (200, 204, 304)


async def test_a_204_has_no_length() -> None:
    async with wire(answering(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).headers == []


# --- clients of HTTP/1.0

OLD = b"GET / HTTP/1.0\r\nhost: a\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "close"),
    [
        (CHUNKED + chunk(b"hello") + b"0\r\nx-t: 1\r\n\r\n", False),
        (CHUNKED + b"5;a\r\nhello\r\n0\r\n\r\n", False),
        (HEAD_200 + b"content-length: 5\r\n\r\nhello", False),
        (HEAD_200 + b"\r\nhello", True),
    ],
    ids=["chunked", "extension", "length", "until close"],
)
@pytest.mark.parametrize("cut", [False, True])
async def test_a_client_of_http_1_0_gets_the_bare_body_and_a_close(response: bytes, close: bool, cut: bool) -> None:
    parts = [response[i : i + 1] for i in range(len(response))] if cut else [response]
    async with wire(pieces(*parts, close=close)) as gateway:
        client = await gateway.client()
        await client.send(OLD)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert body == b"hello"
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head


async def test_a_client_of_http_1_0_may_keep_its_connection_when_there_is_a_length() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            message = await client.ask(b"GET / HTTP/1.0\r\nhost: a\r\nconnection: Keep-Alive\r\n\r\n")
            assert (message.body, message.header(b"connection")) == (b"ok", b"keep-alive")
        assert len(gateway.server.connections) == 1


async def test_a_large_body_for_a_client_of_http_1_0_is_unpacked_as_it_comes() -> None:
    body = bytes(range(256)) * 4096
    coded = b"".join(chunk(body[i : i + 1000]) for i in range(0, len(body), 1000)) + b"0\r\n\r\n"
    async with wire(answering(CHUNKED + coded)) as gateway:
        client = await gateway.client()
        await client.send(OLD)
        assert (await client.rest()).partition(b"\r\n\r\n")[2] == body


# --- headers


async def test_hop_by_hop_headers_of_a_response_stay_here() -> None:
    lines = (
        b"Connection: X-Mine, Keep-Alive\r\nKeep-Alive: timeout=5\r\nx-mine: 1\r\nproxy-connection: x\r\nTE: x\r\n"
        b"Trailer: x-t\r\nUpgrade: h2c\r\nset-cookie: a=b\r\nset-cookie: c=d\r\nX-Case: V\r\n"
    )
    async with wire(answering(HEAD_200 + lines + b"content-length: 2\r\n\r\nok")) as gateway:
        client = await gateway.client()
        message = await client.ask(GET)
        kept = [line for line in message.headers if line[0] != b"content-length"]
        assert kept == [(b"set-cookie", b"a=b"), (b"set-cookie", b"c=d"), (b"x-case", b"V")]
        assert message.header(b"content-length") == b"2"


async def test_connection_cannot_name_away_the_framing_of_a_response() -> None:
    response = HEAD_200 + b"connection: content-length, transfer-encoding\r\ncontent-length: 2\r\n\r\nok"
    async with wire(answering(response)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).header(b"content-length") == b"2"


async def test_lines_of_the_handler_are_added_to_a_response() -> None:
    async with wire(answering(OK)) as gateway:
        gateway.handler.response_lines = b"x-steplane-pool: p\r\n"
        client = await gateway.client()
        assert (await client.ask(GET)).header(b"x-steplane-pool") == b"p"


@pytest.mark.parametrize(
    ("request_bytes", "response"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", OK),
        (b"GET / HTTP/1.1\r\nhost: a\r\nconnection: x, Close\r\n\r\n", OK),
        (b"GET / HTTP/1.0\r\nhost: a\r\n\r\n", OK),
        (b"GET / HTTP/1.0\r\nhost: a\r\nconnection: keep-alive\r\nconnection: close\r\n\r\n", OK),
    ],
)
async def test_the_last_response_says_so_and_the_connection_closes(request_bytes: bytes, response: bytes) -> None:
    async with wire(answering(response)) as gateway:
        client = await gateway.client()
        message = await client.ask(request_bytes)
        assert message.header(b"connection") == b"close"
        await client.closed()


@pytest.mark.parametrize(
    "response",
    [
        HEAD_200 + b"connection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive, close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
)
async def test_an_upstream_that_will_close_is_not_reused_and_the_client_need_not_know(response: bytes) -> None:
    async with wire(answering(response)) as gateway:
        client = await gateway.client()
        for count in (1, 2):
            message = await client.ask(GET)
            assert message.header(b"connection") is None
            assert gateway.connections_made == count
