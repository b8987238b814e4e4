"""Streams: passed on as they come, in both directions, with bounded memory whoever is slow."""

import asyncio
import gc
import tracemalloc

import pytest

from gateway.wire.limits import Limits

from .harness import GET, OK, SSE_HEAD, Served, Wire, answering, chunk, post, until, wire

MIB = 1 << 20
PIECE = bytes(range(256)) * 256


def buffered_towards_client(gateway: Wire) -> int:
    (connection,) = gateway.server.connections
    return connection.transport.get_write_buffer_size()


@pytest.mark.parametrize("head", [SSE_HEAD, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"])
async def test_each_event_reaches_the_client_before_the_upstream_sends_the_next(head: bytes) -> None:
    received = asyncio.Semaphore(0)
    events = [b"data: %d\n\n" % count for count in range(20)] + [b": keep-alive\n\n", b"data: [DONE]\n\n"]

    async def script(served: Served) -> None:
        await served.request()
        await served.send(head)
        for event in events:
            await received.acquire()
            await served.send(chunk(event))
        await received.acquire()
        await served.send(b"0\r\n\r\n")

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        for event in events:
            received.release()
            assert await client.read(len(chunk(event))) == chunk(event)
        received.release()
        assert await client.read(5) == b"0\r\n\r\n"


async def test_half_an_event_is_not_held_back() -> None:
    received = asyncio.Semaphore(0)

    async def script(served: Served) -> None:
        await served.request()
        for part in (SSE_HEAD, b"1", b"0\r\nda", b"ta: 0123456789", b"\r\n0\r\n\r\n"):
            await served.send(part)
            await received.acquire()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        for part in (b"1", b"0\r\nda", b"ta: 0123456789", b"\r\n0\r\n\r\n"):
            received.release()
            assert await client.read(len(part)) == part
        received.release()


@pytest.mark.parametrize("framing", ["chunked", "length", "until close"])
async def test_a_slow_reader_stops_the_upstream_and_costs_bounded_memory(framing: str) -> None:
    count = 32 * MIB // len(PIECE)
    piece = chunk(PIECE) if framing == "chunked" else PIECE
    sent = 0

    async def script(served: Served) -> None:
        nonlocal sent
        await served.request()
        head = {
            "chunked": b"transfer-encoding: chunked\r\n",
            "length": b"content-length: %d\r\n" % (count * len(PIECE)),
            "until close": b"",
        }[framing]
        served.writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        for _ in range(count):
            served.writer.write(piece)
            await served.writer.drain()
            sent += 1
        served.writer.write(b"0\r\n\r\n" if framing == "chunked" else b"")
        await served.writer.drain()

    high_water = 128 * 1024
    async with wire(script, limits=Limits(write_high_water_bytes=high_water)) as gateway:
        client = await gateway.client(receive_buffer=1 << 16)
        client.writer.transport.pause_reading()
        await client.send(GET)
        await until(lambda: any(connection.write_paused for connection in gateway.server.connections))
        await until(lambda: gateway.upstreams[0].blocked())
        assert sent < count
        assert buffered_towards_client(gateway) < high_water + 512 * 1024
        client.writer.transport.resume_reading()
        message = await client.response()
        assert len(message.body) == count * len(PIECE)
        assert message.body == PIECE * count
        assert sent == count


async def test_a_slow_upstream_stops_an_upload_that_is_streamed_through() -> None:
    size = 48 * MIB
    go_on = asyncio.Event()

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        served.writer.transport.pause_reading()
        await go_on.wait()
        served.writer.transport.resume_reading()
        body = await served.read(size)
        assert body == PIECE * (size // len(PIECE))
        await served.send(OK)

    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        client.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        written = 0

        async def upload() -> None:
            nonlocal written
            while written < size:
                client.writer.write(PIECE)
                written += len(PIECE)
                await client.writer.drain()

        uploading = asyncio.create_task(upload())
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        await until(lambda: client.writer.transport.get_write_buffer_size() > 0)
        exchange = gateway.handler.handled[0]
        assert exchange.body_size < size
        go_on.set()
        assert (await client.response()).body == b"ok"
        await uploading


async def test_what_is_sent_behind_a_request_waits_until_it_is_answered() -> None:
    go_on, taken = asyncio.Event(), asyncio.Event()

    async def script(served: Served) -> None:
        served.writer.transport.pause_reading()
        await go_on.wait()
        served.writer.transport.resume_reading()
        await served.request()
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        taken.set()
        await served.send(OK)
        await served.request()
        await served.send(OK)

    async with wire(script) as gateway:
        client = await gateway.client()
        client.writer.write(post(bytes(16 * MIB)) + post(bytes(16 * MIB)))
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        go_on.set()
        await taken.wait()
        assert [(await client.response()).body for _ in range(2)] == [b"ok", b"ok"]


async def test_an_upload_waits_in_the_client_while_nobody_has_been_chosen_to_take_it() -> None:
    size = 32 * MIB
    async with wire(answering(OK), buffering=False, on_handle=lambda exchange: None) as gateway:
        client = await gateway.client()
        client.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        client.writer.write(bytes(size))
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        exchange = gateway.handler.handled[0]
        assert exchange.body_size < 2 * MIB
        gateway.handler.forward(exchange)
        assert (await client.response()).body == b"ok"
        assert exchange.body_size == size


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_each_piece_of_a_streamed_upload_reaches_the_upstream_at_once(chunked: bool) -> None:
    arrived = asyncio.Semaphore(0)
    pieces = [b"piece %d" % count for count in range(10)]

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        for piece in pieces:
            expected = chunk(piece) if chunked else piece
            assert await served.read(len(expected)) == expected
            arrived.release()
        if chunked:
            await served.read(5)
        await served.send(OK)

    framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(b"".join(pieces))
    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n" % framing)
        for piece in pieces:
            await client.send(chunk(piece) if chunked else piece)
            await arrived.acquire()
        if chunked:
            await client.send(b"0\r\n\r\n")
        assert (await client.response()).body == b"ok"


@pytest.mark.parametrize(("chunked", "buffering"), [(False, True), (True, False)], ids=["length", "chunked, streamed"])
async def test_a_body_just_below_the_limit_goes_through(chunked: bool, buffering: bool) -> None:
    body = (PIECE * (64 * MIB // len(PIECE)))[:-1]
    if chunked:
        coded = b"".join(chunk(body[at : at + MIB]) for at in range(0, len(body), MIB)) + b"0\r\n\r\n"
        request = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + coded
    else:
        request = post(body)
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        assert (await client.ask(request)).body == b"ok"
        assert gateway.requests[0].body == body


async def test_a_body_is_let_go_when_the_response_begins() -> None:
    ended = asyncio.Event()

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        for _ in range(16):
            await served.read(MIB)
        await served.send(SSE_HEAD)
        await ended.wait()
        await served.send(b"0\r\n\r\n")

    async with wire(script) as gateway:
        client = await gateway.client()
        tracemalloc.start()
        try:
            await client.send(post(bytes(16 * MIB)))
            await client.head()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 4 * MIB
        finally:
            tracemalloc.stop()
        ended.set()
        assert await client.read(5) == b"0\r\n\r\n"


async def test_a_body_in_tiny_chunks_costs_no_more_memory_than_its_bytes() -> None:
    count = 1 << 15
    async with wire(answering(OK), on_handle=lambda exchange: None) as gateway:
        client = await gateway.client()
        tracemalloc.start()
        try:
            await client.send(
                b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * count
            )
            await until(lambda: gateway.body_bytes == 2 * count)
            assert tracemalloc.get_traced_memory()[0] < MIB
        finally:
            tracemalloc.stop()
        await client.send(b"0\r\n\r\n")
        await gateway.handler.until(lambda: bool(gateway.handler.handled))
        gateway.handler.forward(gateway.handler.handled[0])
        assert (await client.response()).body == b"ok"
