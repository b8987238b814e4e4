"""Going away while somebody else takes the clients: no connection is lost in a queue, none closed under a request."""

import asyncio
import socket

import pytest

from gateway.wire.limits import Timeouts

from .harness import GET, OK, Served, answering, until, wire


async def keep_answering(served: Served) -> None:
    while True:
        await served.request()
        await served.send(OK)


async def test_for_a_while_clients_are_still_accepted_and_told_that_it_is_the_last_answer() -> None:
    async with wire(keep_answering, timeouts=Timeouts(drain_delay_s=3600)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).header(b"connection") is None
        draining = asyncio.create_task(gateway.server.drain())
        await until(lambda: gateway.server.draining)
        late = await gateway.client()
        assert (await late.ask(GET)).header(b"connection") == b"close"
        assert (await client.ask(GET)).header(b"connection") == b"close"
        draining.cancel()


async def test_then_no_more() -> None:
    async with wire(keep_answering, timeouts=Timeouts(drain_delay_s=0.01)) as gateway:
        await gateway.server.drain()
        with pytest.raises(ConnectionError):
            await gateway.client()


async def test_when_it_hands_over_an_idle_connection_may_bring_one_more_request() -> None:
    async with wire(keep_answering) as gateway:
        clients = [await gateway.client() for _ in range(2)]
        await until(lambda: len(gateway.server.connections) == 2)
        leaving = asyncio.create_task(gateway.server.hand_over(3600))
        await until(lambda: gateway.server.draining)
        for client in clients:
            assert not leaving.done()
            assert (await client.ask(GET)).header(b"connection") == b"close"
            await client.closed()
        # It waits no longer than there are connections.
        await leaving


async def test_when_an_idle_connection_has_had_its_time_it_is_closed() -> None:
    async with wire(keep_answering) as gateway:
        client = await gateway.client()
        await until(lambda: bool(gateway.server.connections))
        leaving = asyncio.create_task(gateway.server.hand_over(0.05))
        await client.closed()
        await leaving


@pytest.mark.parametrize("proxy_protocol", [False, True], ids=["plain", "after a PROXY header"])
async def test_who_waits_in_a_queue_that_is_left_is_served_by_whoever_takes_it_next(proxy_protocol: bool) -> None:
    hello = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" if proxy_protocol else b""
    async with wire(answering(OK)) as here, wire(answering(OK)) as there:
        with socket.create_server(("127.0.0.1", 0)) as owner:
            port = owner.getsockname()[1]
            taken = owner.dup()
            await here.server.listen(sock=taken, proxy_protocol=proxy_protocol)
            here.server.leave_to_others(taken)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello + GET)
            await there.server.listen(sock=owner.dup(), proxy_protocol=proxy_protocol)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()
        assert not here.server.counts.connections
