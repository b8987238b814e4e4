"""What the upstream sees of a request: framing, targets, and the headers that go on and those that do not."""

import pytest

from .harness import GET, OK, Message, answering, chunk, post, wire

BOTH_WAYS = pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])


async def seen(request: bytes, *, buffering: bool = True, extra: bytes = b"") -> Message:
    """What an upstream reads of one request; the client must have got its answer."""
    async with wire(answering(OK), buffering=buffering) as gateway:
        gateway.handler.extra_headers = extra
        client = await gateway.client()
        response = await client.ask(request, request.split(b" ")[0])
        assert response.status == 200
        assert len(gateway.requests) == 1
        return gateway.requests[0]


@BOTH_WAYS
@pytest.mark.parametrize("body", [b"x", b"hello" * 1000, bytes(range(256)) * 2000], ids=len)
async def test_a_body_with_a_length_arrives_with_its_length(body: bytes, buffering: bool) -> None:
    message = await seen(post(body), buffering=buffering)
    assert message.body == body
    assert message.header(b"content-length") == b"%d" % len(body)
    assert message.header(b"transfer-encoding") is None


CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


@BOTH_WAYS
@pytest.mark.parametrize(
    ("coded", "body"),
    [
        (b"0\r\n\r\n", b""),
        (chunk(b"hello") + b"0\r\n\r\n", b"hello"),
        (chunk(b"a") * 300 + b"0\r\n\r\n", b"a" * 300),
        (b"5;name=value\r\nhello\r\n0;last\r\n\r\n", b"hello"),
        (b'5;name="quoted; value"\r\nhello\r\n0\r\n\r\n', b"hello"),
        (b"00005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
        (b"a\r\n01\r\n3\r\nabc\r\n0\r\n\r\n", b"01\r\n3\r\nabc"),
        (b"5\r\nhello\r\n0\r\nx-trailer: 1\r\nhost: evil\r\ncontent-length: 7\r\n\r\n", b"hello"),
    ],
)
async def test_a_chunked_body_arrives_whole_and_framed_once(coded: bytes, body: bytes, buffering: bool) -> None:
    message = await seen(CHUNKED + coded, buffering=buffering)
    assert message.body == body
    assert message.values(b"host") == [b"a"]
    assert message.trailers == ()
    assert message.values(b"x-trailer") == []


@BOTH_WAYS
async def test_trailer_fields_do_not_become_headers_of_the_next_request(buffering: bool) -> None:
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        await client.ask(CHUNKED + chunk(b"x") + b"0\r\nx-admin: 1\r\nx-more: 2\r\n\r\n")
        await client.ask(GET)
        assert [name for name, _ in gateway.requests[1].headers] == [b"host"]


@BOTH_WAYS
@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"POST", b"PUT", b"PATCH", b"OPTIONS"])
async def test_a_request_without_a_body_gets_no_framing(method: bytes, buffering: bool) -> None:
    message = await seen(b"%b /x HTTP/1.1\r\nhost: a\r\n\r\n" % method, buffering=buffering)
    assert message.start == b"%b /x HTTP/1.1" % method
    assert message.headers == [(b"host", b"a")]


@BOTH_WAYS
async def test_an_empty_body_keeps_its_length(buffering: bool) -> None:
    assert (await seen(post(b""), buffering=buffering)).header(b"content-length") == b"0"


@pytest.mark.parametrize(
    "length",
    [
        b"content-length: 5",
        b"Content-Length:5",
        b"CONTENT-LENGTH: 5",
        b"content-length:   5",
        b"Content-Length: 5 \t",
        b"content-length: " + b"0" * 5000 + b"5",
    ],
    ids=range(6),
)
async def test_every_valid_spelling_of_a_length_is_understood(length: bytes) -> None:
    message = await seen(b"POST / HTTP/1.1\r\nhost: a\r\n" + length + b"\r\n\r\nhello")
    assert message.body == b"hello"


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"CHUNKED", b"  chunked "])
async def test_every_valid_spelling_of_chunked_is_understood(coding: bytes) -> None:
    message = await seen(b"POST / HTTP/1.1\r\nhost: a\r\nTRANSFER-encoding:%b\r\n\r\n1\r\nx\r\n0\r\n\r\n" % coding)
    assert message.body == b"x"


# --- headers

HOP_BY_HOP = [
    b"connection: keep-alive",
    b"Keep-Alive: timeout=5",
    b"proxy-connection: keep-alive",
    b"TE: trailers",
    b"trailer: x-check",
    b"upgrade: websocket",
]


@pytest.mark.parametrize("line", HOP_BY_HOP)
async def test_hop_by_hop_headers_stay_here(line: bytes) -> None:
    message = await seen(b"GET / HTTP/1.1\r\nhost: a\r\n%b\r\nx-kept: 1\r\n\r\n" % line)
    assert message.headers == [(b"host", b"a"), (b"x-kept", b"1")]


@pytest.mark.parametrize(
    "options",
    [
        [b"connection: x-mine"],
        [b"Connection: keep-alive, X-Mine"],
        [b"connection: keep-alive", b"connection: ,x-mine ,"],
    ],
)
async def test_headers_that_connection_names_stay_here(options: list[bytes]) -> None:
    lines = b"\r\n".join([b"X-Mine: 1", b"host: a", *options, b"x-yours: 2"])
    message = await seen(b"GET / HTTP/1.1\r\n" + lines + b"\r\n\r\n")
    assert message.headers == [(b"host", b"a"), (b"x-yours", b"2")]


@pytest.mark.parametrize("named", [b"host", b"content-length", b"transfer-encoding", b"content-length, host"])
async def test_connection_cannot_name_away_what_frames_or_addresses_a_request(named: bytes) -> None:
    message = await seen(
        b"POST / HTTP/1.1\r\nhost: a\r\nconnection: %b\r\ncontent-length: 5\r\n\r\nhello" % named,
        extra=b"x-extra: 1\r\n",
    )
    assert (message.header(b"host"), message.header(b"content-length"), message.body) == (b"a", b"5", b"hello")


async def test_all_other_headers_arrive_as_they_were_in_their_order() -> None:
    lines = [
        (b"x-1", b"b;q=1, a"),
        (b"cookie", b"a=b"),
        (b"x-1", b""),
        (b"authorization", b"Bearer \xe4\xf6"),
        (b"x-long", b"v" * 5000),
        (b"x-tab", b"a\tb"),
    ]
    head = b"".join(b"%b: %b\r\n" % line for line in lines)
    assert (await seen(b"GET / HTTP/1.1\r\nhost: a\r\n" + head + b"\r\n")).headers == [(b"host", b"a"), *lines]


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [
        (b"OPTIONS", b"10", b"9"),
        (b"OPTIONS", b"1", b"0"),
        (b"TRACE", b"7", b"6"),
        (b"GET", b"0", b"0"),
        (b"OPTIONS", b"no number", b"no number"),
    ],
)
async def test_max_forwards_is_counted_down_where_it_has_a_meaning(method: bytes, before: bytes, after: bytes) -> None:
    """RFC 9110 section 7.6.2."""
    message = await seen(b"%b / HTTP/1.1\r\nhost: a\r\nMax-Forwards: %b\r\n\r\n" % (method, before))
    assert message.header(b"max-forwards") == after


@pytest.mark.parametrize("method", [b"OPTIONS", b"TRACE"])
async def test_a_request_that_may_go_no_further_goes_no_further(method: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(b"%b / HTTP/1.1\r\nhost: a\r\nmax-forwards: 0\r\n\r\n" % method)).status == 501
        assert gateway.requests == []


async def test_lines_that_are_equal_and_new_stay_two() -> None:
    """Heads are remembered without the lines that are new each time, and those are found again by what they say."""
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.ask(post(b"b"))
        for first, second in ((b"1", b"1"), (b"2", b"1"), (b"3", b"2"), (b"3", b"3")):
            await client.ask(
                b"POST / HTTP/1.1\r\nhost: a\r\nx: %b\r\nx: %b\r\ncontent-length: 1\r\n\r\nb" % (first, second)
            )
            assert gateway.requests[-1].values(b"x") == [first, second]


async def test_headers_of_the_handler_are_added() -> None:
    message = await seen(post(b"x"), extra=b"x-extra: 1\r\nx-more: 2\r\n")
    assert (message.header(b"x-extra"), message.header(b"x-more")) == (b"1", b"2")


# --- targets and versions


@pytest.mark.parametrize(
    ("line", "start"),
    [
        (b"GET http://other/x?y=1 HTTP/1.1", b"GET /x?y=1 HTTP/1.1"),
        (b"GET HTTP://other:99/x HTTP/1.1", b"GET /x HTTP/1.1"),
        (b"GET https://other HTTP/1.1", b"GET / HTTP/1.1"),
        (b"GET http://other?y=/1 HTTP/1.1", b"GET /?y=/1 HTTP/1.1"),
        (b"OPTIONS * HTTP/1.1", b"OPTIONS * HTTP/1.1"),
        (b"OPTIONS http://other HTTP/1.1", b"OPTIONS * HTTP/1.1"),
        (b"OPTIONS http://other/ HTTP/1.1", b"OPTIONS / HTTP/1.1"),
        (b"OPTIONS http://other?q HTTP/1.1", b"OPTIONS /?q HTTP/1.1"),
        (b"GET /a%2Fb/%E4?q=%00 HTTP/1.1", b"GET /a%2Fb/%E4?q=%00 HTTP/1.1"),
        (b"GET //a/../b HTTP/1.1", b"GET //a/../b HTTP/1.1"),
        (b"GET /x HTTP/1.0", b"GET /x HTTP/1.1"),
    ],
)
async def test_targets_go_on_in_origin_form_and_otherwise_untouched(line: bytes, start: bytes) -> None:
    assert (await seen(line + b"\r\nhost: a\r\n\r\n")).start == start


async def test_the_authority_of_an_absolute_target_takes_the_place_of_host() -> None:
    message = await seen(b"GET http://b:81/x HTTP/1.1\r\nhost: a\r\n\r\n")
    assert message.values(b"host") == [b"b:81"]


@pytest.mark.parametrize("line", [b"", b"x-other: 1\r\n"])
async def test_a_request_of_http_1_0_without_host_becomes_a_valid_one_of_http_1_1(line: bytes) -> None:
    message = await seen(b"GET / HTTP/1.0\r\n%b\r\n" % line, extra=b"x-extra: 1\r\n")
    assert message.start == b"GET / HTTP/1.1"
    assert len(message.values(b"host")) == 1
    assert message.header(b"x-extra") == b"1"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/chat/completions?x=1", "/v1/chat/completions"),
        (b"/v1/%63hat/completions", "/v1/chat/completions"),
        (b"/v1%2Fchat/completions", "/v1/chat/completions"),
        (b"/%ff%00", "/\ufffd\0"),
        (b"/%", "/%"),
        (b"/%zz%2", "/%zz%2"),
        (b"http://a/v1/%6dodels", "/v1/models"),
        (b"*", "*"),
    ],
)
async def test_the_handler_reads_the_path_as_the_upstream_will(target: bytes, path: str) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.ask(b"OPTIONS %b HTTP/1.1\r\nhost: a\r\n\r\n" % target)
        assert gateway.handler.handled[0].path == path


# --- Expect and Upgrade


@BOTH_WAYS
async def test_a_client_that_expects_100_continue_is_told_to_go_on(buffering: bool) -> None:
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\nExpect: 100-Continue\r\ncontent-length: 5\r\n\r\n")
        assert await client.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await client.ask(b"hello")).body == b"ok"
        assert gateway.requests[0].body == b"hello"
        assert gateway.requests[0].header(b"expect") is None


async def test_100_continue_does_not_fall_into_the_response_before_it() -> None:
    async def script(served):  # type: ignore[no-untyped-def]
        await served.request()
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await served.read_until(b"never")

    expecting = b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        assert (await client.head()).status == 200
        assert await client.read(2) == b"ab"
        await client.send(expecting)
        client.close()
        await gateway.finished()
        assert await client.rest() == b""


async def test_100_continue_comes_when_the_response_before_it_is_done() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(GET + b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        assert (await client.response()).body == b"ok"
        assert await client.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await client.ask(b"hello")).body == b"ok"


async def test_a_client_of_http_1_0_is_never_told_to_continue() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.0\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
        assert (await client.ask(b"hello")).status == 200


@BOTH_WAYS
@pytest.mark.parametrize("body", [b"", b"hello"])
async def test_an_upgrade_is_ignored_and_the_request_served_as_it_is(buffering: bool, body: bytes) -> None:
    """As curl --http2 asks."""
    head = (
        b"POST / HTTP/1.1\r\nhost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(head)
        assert (await client.ask(body) if body else await client.response()).body == b"ok"
        names = [name for name, _ in gateway.requests[0].headers]
        assert names == [b"host", b"content-length"]
        assert gateway.requests[0].body == body
