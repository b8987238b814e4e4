"""Upstreams and handlers that fail: what is tried again, what the client is told, and that nobody else notices."""

import asyncio
import contextlib
import socket

import orjson
import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.failure import FailureKind
from gateway.wire.limits import Timeouts
from gateway.wire.message import error_reply

from .harness import ERROR_EVENT, GET, OK, SSE_HEAD, Client, Served, Wire, answering, chunk, post, wire

HASTY = Timeouts(sweep_s=0.02, connect_s=0.3)


def kinds(gateway: Wire) -> list[FailureKind]:
    return [failure.kind for failure in gateway.handler.failures]


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


async def in_pieces(served: Served, *parts: bytes) -> None:
    await served.request()
    for part in parts:
        await served.send(part)
        await served.turn()


def dying(*parts: bytes, reset: bool = False):  # type: ignore[no-untyped-def]
    """Send a part of a response, and die."""

    async def script(served: Served) -> None:
        await in_pieces(served, *parts)
        if reset:
            served.reset()

    return script


async def everything(client: Client) -> bytes:
    """What comes until the connection ends, however it ends."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := await client.read_some():
            data += part
    return data


# --- before a response


async def test_a_refused_connection_is_tried_elsewhere() -> None:
    async with wire(answering(OK)) as gateway:
        gateway.handler.upstreams = [gateway.pool(closed_port()), *gateway.pools]
        client = await gateway.client()
        assert (await client.ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == [FailureKind.connect_failed]


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid", "x" * 70 + ".invalid"])
async def test_when_nobody_can_be_reached_the_client_gets_an_error_it_can_read(host: str) -> None:
    async with wire() as gateway:
        gateway.handler.upstreams = [gateway.pool(closed_port(), host)]
        client = await gateway.client()
        for _ in range(2):  # and may ask again on the same connection
            message = await client.ask(post(b"x"))
            assert message.status == 502
            error = orjson.loads(message.body)["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert host[:60] in error["message"]


async def test_a_host_that_does_not_accept_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        async with wire(answering(OK), timeouts=HASTY) as gateway:
            deaf_pool = gateway.pool(deaf.getsockname()[1])
            gateway.handler.upstreams = [deaf_pool, *gateway.pools[:1]]
            client = await gateway.client()
            assert (await client.ask(GET)).body == b"ok"
            assert kinds(gateway) == [FailureKind.connect_timeout]
            gateway.handler.upstreams = [deaf_pool]
            assert (await client.ask(GET)).status == 504
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
async def test_an_upstream_that_closes_without_a_response_is_followed_by_another(reset: bool) -> None:
    async with wire(dying(reset=reset), answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == [FailureKind.closed_early]
        assert [message.body for message in gateway.requests] == [b"x", b"x"]


@pytest.mark.parametrize("part", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r"])
async def test_an_upstream_that_dies_in_its_header_has_not_answered(part: bytes) -> None:
    async with wire(dying(part)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).status == 502


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("body", [b"x", b"x" * 200_000], ids=len)
async def test_a_kept_connection_that_turns_out_closed_is_replaced(reset: bool, body: bytes) -> None:
    """As when an engine's idle limit is reached just as the next request is written."""

    async def script(served: Served) -> None:
        await served.request()
        served.read_no_more()
        await served.send(OK)
        if gateway.connections_made == 1:
            await served.unread()
            if reset:
                served.reset()
            return
        await served.request()

    async with wire(script) as gateway:
        client = await gateway.client()
        assert (await client.ask(post(b"x"))).body == b"ok"
        assert (await client.ask(post(body))).body == b"ok"
        assert kinds(gateway) == [FailureKind.stale]
        assert gateway.connections_made == 2


async def test_an_idle_connection_that_the_upstream_closes_is_forgotten_at_once() -> None:
    async with wire(answering(OK, then_close=True)) as gateway:
        client = await gateway.client()
        for _ in range(3):
            assert (await client.ask(GET)).body == b"ok"
            await gateway.until_idle(0)
        assert kinds(gateway) == []


async def test_an_upstream_that_speaks_unasked_is_not_trusted() -> None:
    spoken = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await spoken.wait()
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    async with wire(script) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).body == b"ok"
        assert gateway.pools[0].idle == 1
        spoken.set()
        await gateway.until_idle(0)
        assert (await client.ask(GET)).body == b"ok"


@pytest.mark.parametrize("greeting", [b"220 smtp ready\r\n", OK])
async def test_an_upstream_that_speaks_first_is_not_trusted(greeting: bytes) -> None:
    async def script(served: Served) -> None:
        await served.send(greeting)
        await served.request()
        await served.send(OK)

    async with wire(script) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).status in (200, 502)  # a response that was early by a moment cannot be told
        assert gateway.pools[0].idle <= 1


GARBAGE = [
    b"garbage\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x15\x03\x01\x00\x02\x02",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\ncontent-length: 0\n\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 200 O\0K\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 000 Nothing\r\n\r\n",
    b"HTTP/1.1 099 Nothing\r\n\r\n" + OK,
    b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"a:\r\n" * 257 + b"\r\n",
    b"HTTP/1.1 103 Early Hints\r\n" + b"a:\r\n" * 257 + b"\r\n" + OK,
    b"HTTP/1.1 200 OK\r\n" + b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n" * 10_000,
]


@pytest.mark.parametrize("response", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("known", [False, True], ids=["first", "after a good one"])
async def test_what_is_not_http_is_a_bad_gateway(response: bytes, known: bool) -> None:
    good = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

    async def script(served: Served) -> None:
        if known:
            await in_pieces(served, good)
        await in_pieces(served, response)
        await served.rest()

    async with wire(script) as gateway:
        client = await gateway.client()
        if known:
            assert (await client.ask(GET)).body == b"ok"
        assert (await client.ask(GET)).status == 502
        assert kinds(gateway) == [FailureKind.bad_response]


# --- in mid-response

EVENT = b"data: 1\n\n"


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize(
    "parts",
    [
        (SSE_HEAD,),
        (SSE_HEAD, chunk(EVENT)),
        (SSE_HEAD + chunk(EVENT),),
        (SSE_HEAD, chunk(EVENT)[:-1], b"\n"),
        (SSE_HEAD, chunk(EVENT)[:-2], b"\r\n"),
        (SSE_HEAD, chunk(EVENT) + chunk(b"data: 2\r\n\r\n")),
        (SSE_HEAD, chunk(EVENT), chunk(b": keep-alive\n\n")),
        (SSE_HEAD, chunk(EVENT), b"9;a=b\r\ndata: 2\n\n\r\n"),
    ],
    ids=range(8),
)
async def test_a_stream_that_dies_between_events_ends_with_an_error_event(
    parts: tuple[bytes, ...], reset: bool
) -> None:
    async with wire(dying(*parts, reset=reset)) as gateway:
        client = await gateway.client()
        message = await client.ask(GET)
        whole = b"".join(parts).removeprefix(SSE_HEAD)
        assert message.body.endswith(ERROR_EVENT)
        assert (
            message.body.count(b"\n\n") + message.body.count(b"\r\n\r\n")
            == whole.count(b"data") + whole.count(b": k") + 1
        )
        assert len(gateway.server.connections) == 1  # the framing is whole: the client may go on
        exchange = gateway.handler.over[0]
        assert exchange.failure is not None
        assert exchange.failure.kind == FailureKind.died


@pytest.mark.parametrize(
    "parts",
    [
        (SSE_HEAD, chunk(b"data: 1\n")),
        (SSE_HEAD, chunk(EVENT), chunk(b"data: ")),
        (SSE_HEAD, chunk(EVENT)[:-2]),
        (SSE_HEAD, chunk(EVENT)[:-1]),
        (SSE_HEAD, chunk(EVENT), b"9"),
        (SSE_HEAD, chunk(EVENT), b"9\r\n"),
        (SSE_HEAD, b"20\r\ndata: 1\n\n\r\n"),
        (SSE_HEAD, chunk(EVENT), b"0\r\n"),
        (SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"), chunk(EVENT)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk(EVENT)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n", EVENT),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 50\r\n\r\n", EVENT + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 16\r\n\r\n", EVENT + b"\r\n"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
async def test_a_response_that_dies_elsewhere_is_visibly_incomplete(parts: tuple[bytes, ...], reset: bool) -> None:
    async with wire(dying(*parts, reset=reset)) as gateway:
        client = await gateway.client()
        await client.send(GET)
        received = await everything(client)
        assert received.partition(b"\r\n\r\n")[2] == b"".join(parts).partition(b"\r\n\r\n")[2]
        assert gateway.handler.over[0].failure is not None


@pytest.mark.parametrize(
    ("parts", "resets"),
    [
        ((SSE_HEAD, chunk(b"data: 1")), True),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"nonsense\r\n"), True),
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n", b"x"), False),
    ],
    ids=["died", "bad chunk", "length"],
)
async def test_a_client_of_http_1_0_sees_an_incomplete_response_as_a_reset_or_by_its_length(
    parts: tuple[bytes, ...], resets: bool
) -> None:
    """Its responses may end with the connection: an end in good order would make them whole."""
    shown = asyncio.Event()

    async def script(served: Served) -> None:
        await in_pieces(served, parts[0])
        await shown.wait()
        await served.send(parts[1])

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n")
        head = await client.head()
        shown.set()
        if resets:
            with pytest.raises(ConnectionResetError):
                await client.rest()
        else:
            assert len(await everything(client)) < int(head.header(b"content-length") or b"0")
        assert gateway.handler.over[0].failure is not None


@pytest.mark.parametrize("end", ["the server's", "the client's time"])
async def test_so_it_does_whoever_ends_it(end: str) -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(10_000_000 if end == "the client's time" else 1))
        await served.rest()

    async with wire(script, timeouts=Timeouts(sweep_s=0.02, stream_idle_s=0.3)) as gateway:
        client = await gateway.client()
        await client.send(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n")
        await client.head()
        if end == "the server's":
            await gateway.server.close()
        else:
            client.writer.transport.pause_reading()
            await gateway.finished()
            client.writer.transport.resume_reading()
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_a_stream_for_a_client_of_http_1_0_ends_with_the_error_event() -> None:
    async with wire(dying(SSE_HEAD, chunk(EVENT))) as gateway:
        client = await gateway.client()
        await client.send(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n")
        assert (await client.rest()).partition(b"\r\n\r\n")[2] == EVENT + ERROR_EVENT


async def test_a_bad_chunk_in_mid_stream_ends_it() -> None:
    shown = asyncio.Event()

    async def script(served: Served) -> None:
        await in_pieces(served, SSE_HEAD, chunk(EVENT))
        await shown.wait()
        await served.send(b"nonsense\r\n")
        await served.rest()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        await client.read(len(chunk(EVENT)))
        shown.set()
        assert not (await everything(client)).endswith(b"0\r\n\r\n")
        assert gateway.handler.over[0].failure.kind == FailureKind.bad_response  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "response",
    [OK, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize("excess", [b"\r\n", b"\n", b"\r\n\r\n"])
async def test_empty_lines_behind_a_response_are_not_for_the_client(response: bytes, excess: bytes) -> None:
    async with wire(answering(response + excess)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            assert (await client.ask(GET)).body == b"ok"


@pytest.mark.parametrize("excess", [b"x", OK, b"HTTP/1.1 200 OK\r\n\r\n", bytes(1000)])
@pytest.mark.parametrize("framing", ["length", "chunked", "204"])
async def test_a_second_response_is_not_for_the_client(framing: str, excess: bytes) -> None:
    response = {
        "length": OK,
        "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    }[framing]
    async with wire(answering(response + excess)) as gateway:
        client = await gateway.client()
        for count in (1, 2):
            message = await client.ask(GET)
            assert message.status in (200, 204, 502)
            assert message.body in (b"ok", b"") or message.status == 502
            assert gateway.connections_made == count


# --- uploads


@pytest.mark.parametrize("close", [False, True])
async def test_an_early_response_reaches_a_client_that_is_still_sending(close: bool) -> None:
    async def script(served: Served) -> None:
        await served.read_until(b"begin")
        await served.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        if not close:
            await everything(served)  # type: ignore[arg-type]

    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nbegin")
        message = await client.response()
        assert (message.status, message.body, message.header(b"connection")) == (413, b"no", b"close")
        with contextlib.suppress(ConnectionError):
            await client.send(bytes(900_000))
        await gateway.finished()


async def test_a_response_that_ends_with_the_connection_is_whole_though_the_request_was_not_taken() -> None:
    over = asyncio.Event()

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        served.writer.transport.pause_reading()
        await served.send(b"HTTP/1.1 413 Too Large\r\n\r\nno")
        served.writer.write_eof()
        await over.wait()

    async with wire(script) as gateway:
        client = await gateway.client()
        message = await client.ask(post(bytes(30_000_000)))
        assert (message.status, message.body) == (413, b"no")
        over.set()


async def test_a_connection_on_which_a_request_is_still_going_out_is_not_used_for_another() -> None:
    over = asyncio.Event()

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        served.writer.transport.pause_reading()
        await served.send(OK)
        await over.wait()

    async with wire(script) as gateway:
        client = await gateway.client()
        assert (await client.ask(post(bytes(30_000_000)))).body == b"ok"
        assert (await client.ask(GET)).body == b"ok"
        assert gateway.connections_made == 2
        over.set()


async def test_a_response_that_begins_in_the_upload_and_ends_after_it() -> None:
    async def script(served: Served) -> None:
        await served.read_until(b"begin")
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await served.read_until(b"end")
        await served.send(b"cd")
        await everything(served)  # type: ignore[arg-type]

    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\nbegin")
        await client.head()
        await client.send(b"end")
        assert await client.read(4) == b"abcd"
        await client.closed()


async def test_a_streamed_body_is_not_sent_twice() -> None:
    async def script(served: Served) -> None:
        await served.read_until(b"begin")

    async with wire(script, answering(OK), buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\nbegin")
        assert (await client.response()).status == 502
        assert gateway.upstreams[1].connections == 0


async def test_a_streamed_body_of_which_nothing_was_given_away_is_tried_elsewhere() -> None:
    async with wire(answering(OK), buffering=False) as gateway:
        gateway.handler.upstreams = [gateway.pool(closed_port()), *gateway.pools[:1]]
        client = await gateway.client()
        assert (await client.ask(post(bytes(300_000)))).body == b"ok"
        assert gateway.requests[0].body == bytes(300_000)


async def test_each_attempt_sends_the_body_that_was_meant_for_it() -> None:
    async with wire(dying(), answering(OK)) as gateway:

        def forward(exchange: Exchange) -> None:
            exchange.forward(gateway.handler.upstreams[exchange.context], body=exchange.body + b"!")

        gateway.handler.forward = forward  # type: ignore[method-assign]
        client = await gateway.client()
        assert (await client.ask(post(b"x"))).body == b"ok"
        assert [message.body for message in gateway.requests] == [b"x!", b"x!"]


# --- handlers


class OopsError(Exception):
    """What a handler raises."""


def raising(*_: object) -> None:
    raise OopsError


@pytest.mark.parametrize("method", ["buffers", "handle", "failed"])
async def test_a_handler_that_raises_is_an_internal_error_for_that_request_alone(method: str) -> None:
    async with wire(answering(b"garbage")) as gateway:
        other = await gateway.client()
        await other.ask(GET)
        original = getattr(gateway.handler, method)
        calls: list[Exchange] = []

        def first_raises(exchange: Exchange, *rest: object) -> object:
            result = original(exchange, *rest) if method == "handle" else None
            if not calls:
                calls.append(exchange)
                raise OopsError
            return result if method == "handle" else original(exchange, *rest)

        setattr(gateway.handler, method, first_raises)
        client = await gateway.client()
        message = await client.ask(post(b"x"))
        assert message.status == 500
        assert orjson.loads(message.body)["error"]["code"] == "internal_error"
        assert (await other.ask(GET)).status == 502


async def test_a_handler_that_raises_when_told_that_an_exchange_is_over_harms_nobody() -> None:
    async with wire(answering(OK)) as gateway:
        told = gateway.handler.finished

        def finished(exchange: Exchange) -> None:
            told(exchange)
            raise OopsError

        gateway.handler.finished = finished  # type: ignore[method-assign]
        client = await gateway.client()
        for _ in range(2):
            assert (await client.ask(GET)).body == b"ok"


async def test_a_handler_that_raises_for_a_broken_stream_leaves_it_visibly_incomplete() -> None:
    async with wire(dying(SSE_HEAD, chunk(EVENT))) as gateway:
        gateway.handler.stream_error = raising  # type: ignore[method-assign,assignment]
        client = await gateway.client()
        await client.send(GET)
        assert not (await everything(client)).endswith(b"0\r\n\r\n")
        await gateway.finished()


async def test_a_reply_that_comes_after_the_response_has_begun_is_ignored() -> None:
    end = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(EVENT))
        await end.wait()
        await served.send(b"0\r\n\r\n")

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        gateway.handler.handled[0].reply(error_reply(500, "too late", "too_late"))
        end.set()
        assert await client.read_until(b"0\r\n\r\n") == chunk(EVENT) + b"0\r\n\r\n"


async def test_a_handler_may_take_its_time() -> None:
    waiting: list[Exchange] = []
    async with wire(answering(OK), on_handle=waiting.append) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await gateway.handler.until(lambda: bool(waiting))
        await asyncio.sleep(0)
        gateway.handler.forward(waiting[0])
        assert (await client.response()).body == b"ok"
