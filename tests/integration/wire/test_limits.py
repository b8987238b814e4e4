"""Sizes and counts: what is too much is refused with an answer that the client can read."""

import asyncio
import contextlib

import pytest

from gateway.wire.limits import Limits, Timeouts

from .harness import GET, OK, SSE_HEAD, Client, Served, answering, chunk, post, until, wire

SMALL = Limits(max_header_bytes=2048, max_body_bytes=1000)
BOTH_WAYS = pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])


def head(size: int) -> bytes:
    """A request of `size` bytes."""
    start, end = b"GET / HTTP/1.1\r\nhost: a\r\nx: ", b"\r\n\r\n"
    return start + b"y" * (size - len(start) - len(end)) + end


@BOTH_WAYS
async def test_a_body_of_exactly_the_limit_is_welcome(buffering: bool) -> None:
    async with wire(answering(OK), limits=SMALL, buffering=buffering) as gateway:
        client = await gateway.client()
        coded = chunk(bytes(500)) * 2 + b"0\r\n\r\n"
        assert (await client.ask(post(bytes(1000)))).status == 200
        assert (
            await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + coded)
        ).status == 200


@BOTH_WAYS
async def test_a_length_above_the_limit_is_refused_before_the_body(buffering: bool) -> None:
    async with wire(answering(OK), limits=SMALL, buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
        message = await client.response()
        assert (message.status, message.header(b"connection")) == (413, b"close")
        await client.closed()
        assert gateway.handler.handled == []


@BOTH_WAYS
@pytest.mark.parametrize("size", [1001, 5_000_000])
async def test_a_chunked_body_above_the_limit_is_refused_when_it_gets_there(size: int, buffering: bool) -> None:
    async with wire(answering(OK), limits=SMALL, buffering=buffering) as gateway:
        client = await gateway.client()
        client.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        client.writer.write(chunk(bytes(size)) + b"0\r\n\r\n")
        assert (await client.response()).status == 413
        await client.closed()
        assert gateway.requests == []


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_the_refusal_reaches_a_client_that_sends_its_whole_body_first(chunked: bool) -> None:
    """As most HTTP libraries do: they look for an answer only when all has been sent."""
    body = bytes(20_000_000)
    framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(body)
    async with wire(answering(OK), limits=SMALL) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n" % framing)
        for at in range(0, len(body), 1_000_000):
            piece = body[at : at + 1_000_000]
            await client.send(chunk(piece) if chunked else piece)
        client.writer.transport.resume_reading()
        assert (await client.response()).status == 413
        client.close()


async def test_a_client_that_goes_on_sending_for_ever_is_cut_off() -> None:
    async with wire(answering(OK), limits=SMALL, timeouts=Timeouts(sweep_s=0.02, linger_s=0.2)) as gateway:
        client = await gateway.client()

        async def flood() -> None:
            with contextlib.suppress(ConnectionError):
                await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 999999999999\r\n\r\n")
                while gateway.server.connections:
                    await client.send(bytes(65536))

        flooding = asyncio.create_task(flood())
        assert (await client.response()).status == 413
        await until(lambda: not gateway.server.connections)
        await flooding


async def test_a_header_of_exactly_the_limit_is_welcome() -> None:
    async with wire(answering(OK), limits=SMALL) as gateway:
        client = await gateway.client()
        assert (await client.ask(head(2048))).status == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (head(2049), 431),
        (head(300_000), 431),
        (b"GET /%b HTTP/1.1\r\nhost: a\r\n\r\n" % (b"x" * 3000), 414),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 1000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 3000, 431),
        (b"GET /" + b"x" * 300_000, 414),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"y" * 3000, 431),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("cut", [1 << 20, 1000, 61])
async def test_a_header_above_the_limit_is_refused(request_bytes: bytes, status: int, cut: int) -> None:
    async with wire(answering(OK), limits=SMALL) as gateway:
        client = await gateway.client()
        await client.ask(post(b"x"))
        with contextlib.suppress(ConnectionError):
            for at in range(0, min(len(request_bytes), 8000), cut):
                await client.send(request_bytes[at : at + cut])
                await client.turn()
        message = await client.response()
        assert (message.status, message.header(b"connection")) == (status, b"close")
        await client.closed()
        assert len(gateway.requests) == 1


async def test_the_last_part_of_a_large_upload_is_not_taken_for_a_header() -> None:
    limits = Limits(max_header_bytes=2048)
    async with wire(answering(OK), limits=limits, buffering=False) as gateway:
        client = await gateway.client()
        body = bytes(3_000_000)
        for _ in range(2):
            assert (await client.ask(post(body))).status == 200
            assert gateway.requests[-1].body == body


async def test_one_connection_more_than_allowed_is_turned_away_with_an_answer() -> None:
    async with wire(answering(OK), limits=Limits(max_connections=2)) as gateway:
        clients = [await gateway.client() for _ in range(2)]
        for client in clients:
            assert (await client.ask(GET)).status == 200
        third = await gateway.client()
        message = await third.ask(GET)
        assert (message.status, message.header(b"retry-after"), message.header(b"connection")) == (503, b"1", b"close")
        clients[0].close()
        await until(lambda: clients[1] is not None and len(gateway.server.connections) <= 2)
        third.close()
        assert (await (await gateway.client()).ask(GET)).status == 200


async def test_without_a_limit_there_is_one_where_files_for_replicas_would_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.wire.server.connections_allowed", lambda: 1)
    async with wire(answering(OK)) as gateway:
        first, second = [await gateway.client() for _ in range(2)]
        assert (await first.ask(GET)).status == 200
        assert (await second.response()).status == 503


async def test_those_turned_away_do_not_take_the_place_of_others() -> None:
    async with wire(answering(OK), limits=Limits(max_connections=1)) as gateway:
        first = await gateway.client()
        assert (await first.ask(GET)).status == 200
        for _ in range(5):
            assert (await (await gateway.client()).response()).status == 503
        before = len(gateway.server.connections)
        first.close()
        await until(lambda: len(gateway.server.connections) < before)
        assert (await (await gateway.client()).ask(GET)).status == 200


async def test_a_running_stream_is_untouched_by_those_turned_away() -> None:
    more = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD)
        await more.wait()
        await served.send(chunk(b"data: 1\n\n") + b"0\r\n\r\n")

    async with wire(script, limits=Limits(max_connections=1)) as gateway:
        client: Client = await gateway.client()
        await client.send(GET)
        await client.head()
        assert (await (await gateway.client()).response()).status == 503
        more.set()
        assert await client.read_until(b"0\r\n\r\n") == chunk(b"data: 1\n\n") + b"0\r\n\r\n"
