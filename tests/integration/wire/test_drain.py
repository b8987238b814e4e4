"""The end: nothing new is accepted, what runs may finish, and then nothing is left."""

import asyncio
import time

import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.failure import FailureKind
from gateway.wire.limits import Timeouts

from .harness import ERROR_EVENT, GET, OK, QUICK, SSE_HEAD, Served, answering, chunk, post, until, wire

BRIEF = Timeouts(sweep_s=0.02, drain_s=0.1)


class Stream:
    """A script whose stream ends when the test says so; `silent`: it does not even begin before."""

    def __init__(self, *, silent: bool = False) -> None:
        self.end = asyncio.Event()
        self._silent = silent

    async def __call__(self, served: Served) -> None:
        await served.request()
        if self._silent:
            await self.end.wait()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await self.end.wait()
        await served.send(chunk(b"data: 2\n\n") + b"0\r\n\r\n")


async def test_draining_without_connections_is_over_at_once() -> None:
    async with wire(answering(OK)) as gateway:
        await gateway.server.drain()


async def test_nothing_is_accepted_any_more() -> None:
    stream = Stream()
    async with wire(stream) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        draining = asyncio.create_task(gateway.server.drain())
        await until(lambda: gateway.server.draining)
        with pytest.raises(ConnectionError):
            await gateway.client()
        stream.end.set()
        await draining


async def test_idle_connections_are_closed_and_a_running_stream_finishes() -> None:
    stream = Stream()
    async with wire(stream) as gateway:
        idle, fresh, busy = await gateway.client(), await gateway.client(), await gateway.client()
        gateway.handler.on_handle = None
        await busy.send(GET)
        assert (await busy.head()).header(b"connection") is None
        await until(lambda: len(gateway.server.connections) == 3)
        draining = asyncio.create_task(gateway.server.drain())
        await idle.closed()
        await fresh.closed()
        assert not draining.done()
        stream.end.set()
        assert (await busy.rest()).endswith(b"0\r\n\r\n")
        await draining
        assert gateway.handler.over[0].failure is None


@pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])
async def test_a_request_that_is_being_received_is_still_answered(buffering: bool) -> None:
    async with wire(answering(OK), buffering=buffering) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhe")
        await until(lambda: gateway.body_bytes == 2)
        draining = asyncio.create_task(gateway.server.drain())
        await until(lambda: gateway.server.draining)
        await client.send(b"llo")
        message = await client.response()
        assert (message.body, message.header(b"connection")) == (b"ok", b"close")
        await draining


async def test_a_response_in_the_drain_says_that_it_is_the_last() -> None:
    waiting: list[Exchange] = []
    async with wire(answering(OK), on_handle=waiting.append) as gateway:
        client = await gateway.client()
        await client.send(GET + GET)
        await gateway.handler.until(lambda: bool(waiting))
        draining = asyncio.create_task(gateway.server.drain())
        await until(lambda: gateway.server.draining)
        gateway.handler.forward(waiting[0])
        assert (await client.response()).header(b"connection") == b"close"
        await client.closed()
        await draining
        assert len(gateway.handler.handled) == 1


@pytest.mark.parametrize("begun", [b"", b"13\r\ndata: unfinished"], ids=["between events", "within one"])
async def test_a_stream_that_takes_too_long_ends_with_an_error_event_where_one_may_stand(begun: bytes) -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n") + begun)
        await served.rest()

    async with wire(script, timeouts=BRIEF) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await client.head()
        assert await client.read(len(chunk(b"data: 1\n\n") + begun))
        await gateway.server.drain()
        assert await client.rest() == (b"" if begun else chunk(ERROR_EVENT) + b"0\r\n\r\n")
        (exchange,) = gateway.handler.over
        assert exchange.failure is not None
        assert exchange.failure.kind == FailureKind.draining


@pytest.mark.parametrize("part", [b"GET / HTTP/1.1\r\nhost", post(b"hello")[:-1]], ids=["header", "body"])
async def test_a_request_that_is_not_there_in_time_is_answered_for(part: bytes) -> None:
    async with wire(answering(OK), timeouts=BRIEF) as gateway:
        client = await gateway.client()
        await client.send(part)
        await until(lambda: any(each._partial or each._incoming for each in gateway.server.connections))
        await gateway.server.drain()
        message = await client.response()
        assert (message.status, message.header(b"connection")) == (503, b"close")
        assert b'"code":"draining"' in message.body


async def test_a_request_that_has_no_answer_in_time_gets_ours() -> None:
    async with wire(Stream(silent=True), timeouts=BRIEF) as gateway:
        client = await gateway.client()
        await client.send(GET)
        await gateway.handler.until(lambda: bool(gateway.handler.handled))
        await gateway.server.drain()
        assert (await client.response()).status == 503
        await client.closed()


async def test_a_request_whose_header_is_coming_in_is_still_answered() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(GET[:20])
        await until(lambda: any(connection._partial for connection in gateway.server.connections))
        draining = asyncio.create_task(gateway.server.drain())
        await until(lambda: gateway.server.draining)
        await client.turn()
        message = await client.ask(GET[20:])
        assert (message.body, message.header(b"connection")) == (b"ok", b"close")
        await draining


async def test_closing_ends_everything_at_once() -> None:
    stream = Stream()
    async with wire(stream, answering(OK)) as gateway:
        streaming, uploading, idle = [await gateway.client() for _ in range(3)]
        await streaming.send(GET)
        await streaming.head()
        await uploading.send(post(b"hello")[:-1])
        await until(lambda: gateway.body_bytes == 4)
        started = time.monotonic()
        await gateway.server.close()
        assert time.monotonic() - started < QUICK.drain_s
        for client in (streaming, uploading, idle):
            await client.rest()
        assert not gateway.server.connections


async def test_pooled_connections_are_closed() -> None:
    gone = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.rest()
        gone.set()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        assert gateway.pools[0].idle == 1
        await gateway.server.drain()
        await gone.wait()
        assert gateway.pools[0].idle == 0
