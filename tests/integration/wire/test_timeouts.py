"""Peers that are slow or silent: each limit ends what it should, names who was slow, and nobody else waits."""

import asyncio

import pytest

from gateway.wire.failure import FailureKind
from gateway.wire.limits import Timeouts

from .harness import ERROR_EVENT, GET, OK, SSE_HEAD, Served, answering, chunk, post, until, wire

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"


async def silent(served: Served) -> None:
    await served.request()
    await served.rest()


def quick(**limits: float) -> Timeouts:
    return Timeouts(sweep_s=0.01, **{"linger_s": 0.5, **limits})


@pytest.mark.parametrize("part", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n"])
async def test_a_header_that_does_not_end_is_answered_with_408(part: bytes) -> None:
    async with wire(answering(OK), timeouts=quick(header_s=0.3)) as gateway:
        client = await gateway.client()
        await client.send(part)
        assert (await client.response()).status == 408
        await client.closed()


async def test_a_header_byte_by_byte_gets_no_more_time_than_another() -> None:
    async with wire(answering(OK), timeouts=quick(header_s=0.4)) as gateway:
        client = await gateway.client()
        await client.ask(GET)

        async def trickle() -> None:
            for at in range(len(GET) * 100):
                await client.send((b"GET /" + b"x" * 10_000)[at : at + 1])
                await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        assert (await client.response()).status == 408
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


@pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])
@pytest.mark.parametrize("part", [b"", b"he"])
async def test_a_body_that_stops_is_answered_with_408(part: bytes, buffering: bool) -> None:
    async with wire(silent, buffering=buffering, timeouts=quick(body_s=0.1)) as gateway:
        client = await gateway.client()
        await client.send(HEAD + part)
        assert (await client.response()).status == 408
        await client.closed()
        assert gateway.requests == []


async def test_a_body_that_stops_behind_another_request_is_answered_with_408() -> None:
    async with wire(answering(OK), timeouts=quick(body_s=0.1)) as gateway:
        client = await gateway.client()
        await client.send(GET + HEAD)
        assert (await client.response()).status == 200
        assert (await client.response()).status == 408


async def test_a_client_that_sends_a_byte_at_a_time_delays_nobody() -> None:
    async with wire(answering(OK), timeouts=quick(body_s=10)) as gateway:
        slow, quick_one = await gateway.client(), await gateway.client()
        await slow.send(HEAD)
        for byte in b"hello":
            assert (await quick_one.ask(GET)).body == b"ok"
            await slow.send(bytes([byte]))
        assert (await slow.response()).body == b"ok"


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with wire(answering(OK), timeouts=quick(keepalive_s=0.1)) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        await client.closed()


async def test_a_connection_that_never_says_anything_is_closed_without_a_word() -> None:
    async with wire(timeouts=quick(header_s=0.3)) as gateway:
        await (await gateway.client()).closed()


async def test_an_upstream_that_does_not_answer_is_a_gateway_timeout() -> None:
    async with wire(silent, timeouts=quick(first_byte_s=0.1)) as gateway:
        client = await gateway.client()
        assert (await client.ask(post(b"x"))).status == 504
        assert [failure.kind for failure in gateway.handler.failures] == [FailureKind.first_byte_timeout]
        assert (await client.ask(b"bad\r\n\r\n")).status == 400


async def test_an_upstream_that_does_not_take_the_request_is_a_gateway_timeout() -> None:
    over = asyncio.Event()

    async def deaf(served: Served) -> None:
        served.writer.transport.pause_reading()
        await over.wait()

    async with wire(deaf, buffering=False, timeouts=quick(first_byte_s=0.2, body_s=0.2, stream_idle_s=0.2)) as gateway:
        client = await gateway.client()
        client.writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n" + bytes(30_000_000))
        message = await client.response()
        over.set()
        assert message.status == 504
        assert b"took nothing of the request body" in message.body


async def test_a_stream_that_stops_between_events_ends_with_an_error_event() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await served.rest()

    async with wire(script, timeouts=quick(stream_idle_s=0.1)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).body == b"data: 1\n\n" + ERROR_EVENT
        failure = gateway.handler.over[0].failure
        assert failure is not None
        assert failure.kind == FailureKind.idle_timeout


async def test_a_stream_that_goes_on_may_last_longer_than_any_limit() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD)
        for _ in range(25):
            await asyncio.sleep(0.05)
            await served.send(chunk(b": keep-alive\n\n"))
        await served.send(b"0\r\n\r\n")

    limit = 1.0
    async with wire(script, timeouts=quick(stream_idle_s=limit, first_byte_s=limit, keepalive_s=limit)) as gateway:
        client = await gateway.client()
        assert len((await client.ask(GET)).chunks) == 25


async def test_a_client_that_never_reads_is_cut_off_and_its_upstream_freed() -> None:
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

    async with wire(script, timeouts=quick(stream_idle_s=0.2)) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(GET)
        await gone.wait()
        await gateway.finished()
        assert gateway.handler.over[0].client_left
        assert gateway.handler.over[0].failure is None
        await until(lambda: not gateway.server.connections)


async def test_a_client_that_never_reads_a_whole_response_is_cut_off() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6000000\r\n\r\n" + bytes(6_000_000))
        await served.rest()

    async with wire(script, timeouts=quick(stream_idle_s=0.2, keepalive_s=0.1, linger_s=0.1)) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(GET)
        await gateway.finished()
        await until(lambda: not gateway.server.connections)


async def test_a_pooled_connection_is_closed_before_the_upstream_would() -> None:
    gone = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.rest()
        gone.set()

    async with wire(script, timeouts=quick(upstream_idle_s=0.5)) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        assert gateway.pools[0].idle == 1
        await gone.wait()
        assert gateway.pools[0].idle == 0


async def test_the_sweep_survives_a_handler_that_raises_in_it() -> None:
    async with wire(silent, timeouts=quick(first_byte_s=0.1)) as gateway:

        def failed(*_: object) -> None:
            raise ValueError

        gateway.handler.failed = failed  # type: ignore[method-assign]
        for _ in range(2):
            assert (await (await gateway.client()).ask(GET)).status == 500
