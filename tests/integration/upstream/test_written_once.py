"""No request is written twice unless the first was certainly not worked on: the server closed as it came."""

import asyncio
from collections import Counter

import pytest

from gateway.wire.failure import FailureKind
from gateway.wire.poolpolicy import PoolPolicy
from tests.integration.wire.harness import GET, OK, Served, answering, post, until, wire

from .harness import PATIENT, connect, kinds, placed


async def test_a_server_that_closes_just_after_each_answer_gets_every_request_once() -> None:
    """The race itself, again and again: a close on its way while the next request is written."""
    async with placed(answering(OK, then_close=True)) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port)
        client = await gateway.client()
        for at in range(200):
            assert (await client.ask(post(b"%d" % at))).body == b"ok"
        assert Counter(message.body for message in server.requests) == Counter(b"%d" % at for at in range(200))
        assert set(kinds(gateway)) <= {FailureKind.stale}


async def test_a_stale_connection_shortens_the_rest_that_connections_are_given() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        if server.connections == 1:
            await served.read(1)  # of the next request
            served.reset()

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        before = pool.idle_s
        assert (await client.ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == [FailureKind.stale]
        assert pool.stale == 1
        assert pool.idle_s < before


@pytest.mark.parametrize("body", [b"x", b"x" * 100_000], ids=len)
async def test_a_server_that_has_read_a_request_and_closes_may_have_worked_on_it(body: bytes) -> None:
    """However soon: a close that crossed the request would have met it unread."""

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.request()

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        assert (await client.ask(post(body))).status == 502
        assert kinds(gateway) == [FailureKind.closed_early]
        assert [message.body for message in server.requests] == [b"", body]


async def test_a_close_long_after_the_request_may_be_its_answer() -> None:
    """An engine that dies of a request does so after a while, whether its connection was new or not."""

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.request()
        await asyncio.sleep(1.1)  # a close that crosses a request takes less
        served.reset()

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        await client.ask(post(b"deadly"))
        assert kinds(gateway)[0] is FailureKind.closed_early
        assert pool.stale == 0


@pytest.mark.parametrize("begun", [b"H", b"HTTP/1.1 200 OK\r\n"])
async def test_once_a_byte_of_an_answer_has_come_a_reused_connection_is_not_stale(begun: bytes) -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.request()
        await served.send(begun)

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        await client.ask(post(b"x"))
        assert FailureKind.stale not in kinds(gateway)


async def test_a_connection_kept_ready_that_is_closed_as_it_is_used_is_replaced() -> None:
    """As by a server, or a firewall, that ends what has never said anything."""

    async def script(served: Served) -> None:
        if server.connections == 1:
            await served.read(1)
            served.reset()
        else:
            await answering(OK)(served)

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(min_idle=1))
        await until(lambda: pool.idle == 1)
        assert (await (await gateway.client()).ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == [FailureKind.stale]


async def test_a_host_that_takes_nothing_of_a_request_is_given_up_by_the_kernel() -> None:
    """As one that has vanished; its process may wait for the first byte of an answer for far longer."""
    left = asyncio.Event()

    async def script(served: Served) -> None:
        served.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await left.wait()

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, policy=PoolPolicy(dead_after_s=1))
        answer = await (await gateway.client()).ask(post(b"x" * 20_000_000))
        assert answer.status == 502
        assert b"acknowledged nothing any more without a response" in answer.body
        left.set()


async def test_a_body_that_is_streamed_through_is_written_once_whatever_happens() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.read(10)
        served.reset()

    async with placed(script) as server, wire(timeouts=PATIENT, buffering=False) as gateway:
        connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        answer = await client.ask(post(b"x" * 1000))
        assert answer.status == 502
        assert server.connections == 1


async def test_a_request_that_waited_for_a_connection_is_written_only_where_it_got_one() -> None:
    """The connection that is handed over dies as it is: the next one gets the request, whole."""
    first = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        if server.connections == 1:
            await first.wait()
            await served.send(OK)
            return  # closes, as the waiting request comes
        await served.send(OK)

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_connections=1))
        one, two = await gateway.client(), await gateway.client()
        await one.send(post(b"one"))
        await until(lambda: len(server.requests) == 1)
        await two.send(post(b"two"))
        await until(lambda: pool.waiting == 1)
        first.set()
        assert (await one.response()).body == b"ok"
        assert (await two.response()).body == b"ok"
        assert [message.body for message in server.requests] == [b"one", b"two"]
