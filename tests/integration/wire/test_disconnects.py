"""A client that leaves: whatever was going on for it ends at once, at the upstream too."""

import asyncio
import socket

import pytest

from gateway.wire.limits import Timeouts

from .harness import GET, OK, QUICK, SSE_HEAD, Client, Served, answering, chunk, post, until, wire

LEAVING = pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["close", "reset"])


class Watched:
    """A script that tells when the gateway has closed its connection."""

    def __init__(self, *parts: bytes, read: bytes = b"\r\n\r\n") -> None:
        self.parts = parts
        self.read = read
        self.reached = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, served: Served) -> None:
        await served.read_until(self.read)
        for part in self.parts:
            await served.send(part)
        self.reached.set()
        try:
            while await served.read_some():
                pass
        except ConnectionError:
            pass
        self.gone.set()


@LEAVING
@pytest.mark.parametrize(
    "parts",
    [(), (SSE_HEAD,), (SSE_HEAD, chunk(b"data: 1\n\n")), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",)],
    ids=["before the first byte", "before the first event", "in mid-stream", "in mid-body"],
)
async def test_leaving_closes_the_upstream_exchange(parts: tuple[bytes, ...], leave) -> None:  # type: ignore[no-untyped-def]
    script = Watched(*parts)
    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await script.reached.wait()
        if parts:
            await client.head()
        leave(client)
        await script.gone.wait()
        await gateway.finished()
        exchange = gateway.handler.over[0]
        assert exchange.client_left
        assert exchange.failure is None
        assert gateway.handler.failures == []


@LEAVING
async def test_leaving_while_connecting_gives_the_connection_up(leave) -> None:  # type: ignore[no-untyped-def]
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        async with wire(timeouts=Timeouts(sweep_s=0.02, connect_s=60)) as gateway:
            gateway.handler.upstreams = [gateway.pool(deaf.getsockname()[1])]
            client = await gateway.client()
            await client.send(GET)
            await gateway.handler.until(lambda: bool(gateway.handler.handled))
            leave(client)
            await gateway.finished()
            assert gateway.handler.over[0].client_left
        for filler in fillers:
            filler.close()


@LEAVING
async def test_leaving_while_the_handler_thinks_is_told_to_it(leave) -> None:  # type: ignore[no-untyped-def]
    async with wire(answering(OK), on_handle=lambda exchange: None) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await gateway.handler.until(lambda: bool(gateway.handler.handled))
        leave(client)
        await gateway.finished()
        exchange = gateway.handler.over[0]
        assert exchange.client_left
        gateway.handler.forward(exchange)  # too late, and harmless
        assert gateway.connections_made == 0


@LEAVING
async def test_leaving_in_a_streamed_upload_closes_the_upstream_exchange(leave) -> None:  # type: ignore[no-untyped-def]
    script = Watched(read=b"begin")
    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nbegin")
        await script.reached.wait()
        leave(client)
        await script.gone.wait()
        await gateway.finished()


@LEAVING
async def test_leaving_in_a_buffered_upload_is_never_seen_by_the_handler(leave) -> None:  # type: ignore[no-untyped-def]
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nbegin")
        await until(lambda: gateway.body_bytes > 0)
        leave(client)
        await until(lambda: not gateway.server.connections)
        assert gateway.handler.handled == []


@LEAVING
async def test_leaving_drops_the_requests_that_wait_behind_the_running_one(leave) -> None:  # type: ignore[no-untyped-def]
    script = Watched()
    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET + GET + GET)
        await script.reached.wait()
        leave(client)
        await script.gone.wait()
        await gateway.finished()
        await until(lambda: not gateway.server.connections)
        assert len(gateway.handler.handled) == 1


@LEAVING
@pytest.mark.parametrize("waiting", [10_000, 5_000_000])
async def test_leaving_is_noticed_however_much_waits_unread(waiting: int, leave) -> None:  # type: ignore[no-untyped-def]
    script = Watched()
    async with wire(script) as gateway:
        client = await gateway.client()
        client.writer.write(GET + post(bytes(waiting)))
        await script.reached.wait()
        await until(lambda: client.writer.transport.get_write_buffer_size() == 0 or waiting > 1_000_000)
        client.reset() if waiting > 1_000_000 else leave(client)
        await script.gone.wait()
        await gateway.finished()


@LEAVING
async def test_leaving_is_noticed_while_the_upstream_does_not_take_the_upload(leave) -> None:  # type: ignore[no-untyped-def]
    over = asyncio.Event()

    async def script(served: Served) -> None:
        await served.read_until(b"\r\n\r\n")
        served.writer.transport.pause_reading()
        await over.wait()

    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n")
        upload = asyncio.create_task(client.send(bytes(20_000_000)))
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        client.reset()
        await gateway.finished()
        over.set()
        await asyncio.gather(upload, return_exceptions=True)


@LEAVING
async def test_leaving_with_a_full_buffer_closes_the_upstream_exchange(leave) -> None:  # type: ignore[no-untyped-def]
    gone = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        served.writer.write(SSE_HEAD)
        try:
            while True:
                served.writer.write(chunk(bytes(65536)))
                await served.writer.drain()
        except ConnectionError:
            gone.set()

    async with wire(script, timeouts=QUICK) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(GET)
        await until(lambda: any(connection.write_paused for connection in gateway.server.connections))
        leave(client)
        await gateway.finished()
        await gone.wait()


async def test_a_client_that_only_stops_sending_counts_as_gone() -> None:
    script = Watched()
    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await script.reached.wait()
        client.writer.write_eof()
        await script.gone.wait()
        await client.closed()


async def test_a_whole_response_still_reaches_a_client_that_has_stopped_sending() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n" + bytes(20_000_000))

    async with wire(script) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(GET)
        await gateway.handler.until(lambda: bool(gateway.handler.handled))
        client.writer.transport.resume_reading()
        assert len((await client.response()).body) == 20_000_000


async def test_one_client_leaving_does_not_touch_another() -> None:
    scripts = Watched(SSE_HEAD)
    async with wire(scripts) as gateway:
        first, second = await gateway.client(), await gateway.client()
        await first.send(GET)
        await first.head()
        await second.send(GET)
        await second.head()
        first.close()
        await scripts.gone.wait()
        await gateway.finished()
        assert len(gateway.server.connections) == 1
