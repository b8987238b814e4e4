"""Clients that move too slowly are cut off, those that have little to move are not; and other limits of theirs."""

import asyncio
import contextlib

import pytest

from gateway.wire import server
from gateway.wire.limits import Limits, Timeouts

from .harness import GET, OK, PATIENCE_S, SSE_HEAD, Served, answering, chunk, post, until, wire

BOTH_WAYS = pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])
LONG = Timeouts(sweep_s=0.02, body_s=60, stream_idle_s=60, header_s=60, keepalive_s=60, rate_grace_s=0.2)


@pytest.fixture(autouse=True)
def at_each_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_RATES_EVERY_S", 0.02)


@BOTH_WAYS
async def test_a_body_that_dribbles_is_answered_with_408(buffering: bool) -> None:
    async def script(served: Served) -> None:
        await served.rest()

    limits = Limits(body_min_bytes_per_s=1_000_000)
    async with wire(script, limits=limits, timeouts=LONG, buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n")
        answer = asyncio.ensure_future(client.response())
        while not answer.done():
            with contextlib.suppress(ConnectionError):
                await client.send(b"x")
            await asyncio.sleep(0.01)
        assert (await answer).status == 408
        assert gateway.server.counts.refused[408] == 1


async def test_a_client_is_not_blamed_for_an_upstream_that_takes_nothing() -> None:
    go_on = asyncio.Event()

    async def script(served: Served) -> None:
        await go_on.wait()
        await served.request()
        await served.send(OK)

    limits = Limits(body_min_bytes_per_s=1_000_000, write_high_water_bytes=1 << 16)
    async with wire(script, limits=limits, timeouts=LONG, buffering=False) as gateway:
        client = await gateway.client()
        client.writer.write(post(bytes(20_000_000)))
        await until(lambda: any(each.reading_paused for each in gateway.server.connections))
        began = gateway.server.loop.time()
        await until(lambda: gateway.server.loop.time() - began > 2 * LONG.rate_grace_s)
        assert 408 not in gateway.server.counts.refused
        gateway.server.configure(Limits(), LONG, None)
        go_on.set()
        assert (await client.response()).status == 200


async def test_a_client_that_takes_a_stream_too_slowly_is_cut_off_and_the_upstream_freed() -> None:
    left = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        with contextlib.suppress(ConnectionError):
            await served.send(SSE_HEAD)
            while True:
                await served.send(chunk(bytes(100_000)))
        left.set()

    limits = Limits(write_min_bytes_per_s=100_000_000, write_high_water_bytes=1 << 16)
    async with wire(script, limits=limits, timeouts=LONG) as gateway:
        client = await gateway.client(receive_buffer=1 << 12)
        await client.send(GET)
        await gateway.finished()
        assert gateway.server.counts.slow_readers == 1
        assert gateway.handler.over[0].client_left
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()


async def test_a_stream_with_little_to_say_is_not_slow() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD)
        for _ in range(20):
            await served.send(chunk(b"data: 1\n\n"))
            await asyncio.sleep(0.01)
        await served.send(b"0\r\n\r\n")

    limits = Limits(write_min_bytes_per_s=100_000_000)
    async with wire(script, limits=limits, timeouts=LONG) as gateway:
        assert len((await (await gateway.client()).ask(GET)).chunks) == 20


@pytest.mark.parametrize("taken", [0, 300_000])
async def test_what_a_client_has_taken_is_what_it_has_acknowledged(taken: int) -> None:
    async with wire(answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (taken, bytes(taken)))) as gateway:
        client = await gateway.client()
        message = await client.ask(GET)
        assert len(message.body) == taken
        (connection,) = gateway.server.connections
        await until(lambda: taken < connection.bytes_taken() < taken + 200)


async def test_one_address_has_so_many_connections_and_others_have_theirs() -> None:
    async with wire(answering(OK), limits=Limits(max_connections_per_address=2)) as gateway:
        clients = [await gateway.client() for _ in range(2)]
        assert [(await client.ask(GET)).status for client in clients] == [200, 200]
        message = await (await gateway.client()).response()
        assert (message.status, message.header(b"retry-after")) == (429, b"1")
        other = gateway.adopt(await asyncio.open_connection("127.0.0.1", gateway.port, local_addr=("127.0.0.2", 0)))
        assert (await other.ask(GET)).status == 200
        clients[0].close()
        await until(lambda: len(gateway.server._entered) == 2)
        assert (await (await gateway.client()).ask(GET)).status == 200
        assert gateway.server.counts.address_full == 1


@pytest.mark.parametrize("count", [1, 3])
async def test_a_connection_ends_after_so_many_requests_and_says_so(count: int) -> None:
    async with wire(answering(OK), limits=Limits(max_requests_per_connection=count)) as gateway:
        client = await gateway.client()
        answers = [await client.ask(GET) for _ in range(count)]
        assert [answer.header(b"connection") for answer in answers] == [None] * (count - 1) + [b"close"]
        await client.closed()
        assert (await (await gateway.client()).ask(GET)).status == 200


async def test_what_moves_is_counted() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            await client.ask(post(b"12345"))
        await (await gateway.client()).ask(b"NONSENSE\r\n\r\n")
        counts = gateway.server.counts
        assert (counts.connections, counts.bytes_in, counts.refused) == (2, 10, {400: 1})
        assert counts.bytes_out > 2 * len(OK)
