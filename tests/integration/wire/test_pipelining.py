"""Requests that come before the answer to the one before them: answered in order, each on its own."""

import asyncio
import socket

import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.limits import Limits
from gateway.wire.message import Reply

from .harness import GET, OK, Served, answering, chunk, post, until, wire

BAD = b"GET / HTTP/1.1\r\nbad header\r\n\r\n"


async def echo(served: Served) -> None:
    """Answer with the target of the request, the slower the earlier it came."""
    while True:
        request = await served.request()
        target = request.start.split(b" ")[1]
        await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(target), target))


def targets(count: int) -> list[bytes]:
    return [b"/%d" % number for number in range(count)]


@pytest.mark.parametrize("buffering", [True, False], ids=["buffered", "streamed"])
@pytest.mark.parametrize("cut", [1, 7, 100, 1_000_000])
async def test_answers_come_in_the_order_of_the_requests(cut: int, buffering: bool) -> None:
    async with wire(echo, buffering=buffering) as gateway:
        client = await gateway.client()
        requests = b"".join(post(b"body of " + target, target) for target in targets(20))
        for at in range(0, len(requests), cut):
            client.writer.write(requests[at : at + cut])
            await client.turn()
        assert [(await client.response()).body for _ in range(20)] == targets(20)
        assert [message.body for message in gateway.requests] == [b"body of " + target for target in targets(20)]
        assert gateway.connections_made == 1


async def test_a_thousand_requests_in_one_write_are_all_answered() -> None:
    async with wire(echo) as gateway:
        client = await gateway.client()
        client.writer.write(b"".join(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % target for target in targets(1000)))
        assert [(await client.response()).body for _ in range(1000)] == targets(1000)


async def test_more_than_is_kept_unread_is_all_answered() -> None:
    body = bytes(100_000)
    async with wire(echo) as gateway:
        client = await gateway.client()
        client.writer.write(b"".join(post(body, target) for target in targets(30)))
        assert [(await client.response()).body for _ in range(30)] == targets(30)
        assert all(message.body == body for message in gateway.requests)


async def test_bytes_keep_their_order_when_more_come_before_the_rest_has_been_turned_to() -> None:
    held: list[Exchange] = []
    async with wire(on_handle=held.append) as gateway:
        client = await gateway.client()
        await client.send(GET + b"GET /1 HTTP/1.1\r\nhost: a\r\nx: GE")
        await gateway.handler.until(lambda: len(held) == 1)
        (connection,) = gateway.server.connections
        held[0].reply(Reply(200, b"0"))
        connection.data_received(b"T / HTTP/1.1\r\n\r\n")  # as the next read would, in the same turn of the loop
        assert (await client.response()).body == b"0"
        await gateway.handler.until(lambda: len(held) == 2)
        assert held[1].head.header(b"x") == b"GET / HTTP/1.1"
        held[1].reply(Reply(200, b"1"))
        assert (await client.response()).body == b"1"


async def test_a_bad_request_gets_its_answer_after_the_good_ones_before_it() -> None:
    async with wire(echo) as gateway:
        client = await gateway.client()
        await client.send(post(b"", b"/1") + post(b"x", b"/2") + BAD + post(b"", b"/3"))
        assert [(await client.response()).body for _ in range(2)] == [b"/1", b"/2"]
        assert (await client.response()).status == 400
        await client.closed()
        assert len(gateway.requests) == 2


async def test_nothing_is_answered_after_a_request_that_said_close() -> None:
    async with wire(echo) as gateway:
        client = await gateway.client()
        await client.send(b"GET /1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" + GET)
        assert (await client.response()).body == b"/1"
        await client.closed()
        assert len(gateway.requests) == 1


async def test_nothing_is_answered_after_a_request_for_an_upgrade() -> None:
    async with wire(echo) as gateway:
        client = await gateway.client()
        await client.send(
            b"GET /1 HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n"
        )
        message = await client.response()
        assert (message.body, message.header(b"connection")) == (b"/1", b"close")
        await client.closed()


async def test_a_failed_request_does_not_stop_those_behind_it() -> None:
    async with wire(answering(b"garbage", then_close=True)) as gateway:
        client = await gateway.client()
        await client.send(GET * 3)
        assert [(await client.response()).status for _ in range(3)] == [502, 502, 502]


async def test_replies_of_the_handler_are_pipelined_too() -> None:
    async with wire(on_handle=lambda exchange: exchange.reply(Reply(200, exchange.head.target))) as gateway:
        client = await gateway.client()
        await client.send(b"".join(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % target for target in targets(100)))
        assert [(await client.response()).body for _ in range(100)] == targets(100)


async def test_between_two_replies_others_have_the_loop() -> None:
    """Thousands of requests fit into one read: answered without a pause, they would stop every stream for as long."""
    turn, loop = 0, asyncio.get_running_loop()
    seen: list[int] = []

    def count() -> None:
        nonlocal turn
        turn += 1
        if len(seen) < 100:
            loop.call_soon(count)

    def reply(exchange: Exchange) -> None:
        seen.append(turn)
        exchange.reply(Reply(200, b"ok"))

    async with wire(on_handle=reply) as gateway:
        client = await gateway.client()
        loop.call_soon(count)
        await client.send(GET * 100)
        for _ in range(100):
            assert (await client.response()).body == b"ok"
        assert len(set(seen)) == 100


@pytest.mark.parametrize("replies", [True, False], ids=["our answers", "the upstream's"])
async def test_no_more_of_them_is_kept_than_one_read_beyond_the_limit(replies: bool) -> None:
    """Else each answer would make room for another read, and a read holds thousands of requests."""
    one = b"GET / HTTP/1.1\r\nhost: a\r\nx: %b\r\n\r\n" % (b"y" * 1000)
    count = 5000
    kept: list[int] = []

    def handle(exchange: Exchange) -> None:
        asyncio.get_running_loop().call_soon(lambda: kept.append(len(exchange.client._unread)))
        if replies:
            exchange.reply(Reply(200, b"ok"))
        else:
            gateway.handler.forward(exchange)

    async with wire(answering(OK), on_handle=handle) as gateway:
        client = await gateway.client()
        asking = asyncio.create_task(client.send(one * count))
        for _ in range(count):
            assert (await client.response()).body == b"ok"
        await asking
        assert max(kept) < 1_000_000


async def test_who_asks_and_never_reads_has_no_more_kept_for_it_than_who_reads_slowly() -> None:
    body = bytes(4096)
    count = 4000
    async with wire(on_handle=lambda exchange: exchange.reply(Reply(200, body))) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        asking = asyncio.create_task(client.send(GET * count))
        await until(lambda: any(connection.write_paused for connection in gateway.server.connections))
        (connection,) = gateway.server.connections
        before = len(gateway.handler.handled)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(gateway.handler.handled) == before < count
        assert connection.transport.get_write_buffer_size() < 2 * gateway.server.limits.write_high_water_bytes
        client.writer.transport.resume_reading()
        for _ in range(count):
            assert len((await client.response()).body) == len(body)
        await asking


@pytest.mark.parametrize("last", [b"connection: close\r\n", b""], ids=["the client closes", "we close"])
async def test_requests_behind_the_last_one_do_not_cost_the_client_its_answer(last: bytes) -> None:
    """Closing with unread data is a reset, and a reset takes away what the client has not got yet."""
    body = bytes(1_000_000)
    held: list[Exchange] = []
    limits = Limits(max_requests_per_connection=1)
    async with wire(on_handle=held.append, limits=limits) as gateway:
        with socket.socket() as place:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            place.setblocking(False)
            await asyncio.get_running_loop().sock_connect(place, ("127.0.0.1", gateway.port))
            client = gateway.adopt(await asyncio.open_connection(sock=place.dup(), limit=1 << 22))
        client.writer.transport.pause_reading()
        await client.send(b"GET / HTTP/1.1\r\nhost: a\r\n%b\r\n" % last)
        asking = asyncio.create_task(client.send(GET * 100_000))
        await until(lambda: any(connection.reading_paused for connection in gateway.server.connections))
        held[0].reply(Reply(200, body))
        client.writer.transport.resume_reading()
        assert (await client.response()).body == body
        client.close()
        await asyncio.gather(asking, return_exceptions=True)


async def test_who_reads_the_last_answer_slowly_has_as_much_time_as_with_any_other() -> None:
    async with wire(on_handle=lambda exchange: exchange.reply(Reply(200, bytes(20_000_000)))) as gateway:
        client = await gateway.client()
        client.writer.transport.pause_reading()
        await client.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        await gateway.finished()
        (connection,) = gateway.server.connections
        timeouts = gateway.server.timeouts
        assert connection.deadline - asyncio.get_running_loop().time() > timeouts.stream_idle_s - timeouts.linger_s
        client.writer.transport.resume_reading()
        assert len((await client.response()).body) == 20_000_000
        await client.closed()


async def test_a_head_reply_of_the_handler_has_no_body() -> None:
    async with wire(on_handle=lambda exchange: exchange.reply(Reply(404, b"nothing here"))) as gateway:
        client = await gateway.client()
        await client.send(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n" + GET)
        assert (await client.response(b"HEAD")).header(b"content-length") == b"12"
        assert (await client.response()).body == b"nothing here"


async def test_a_reply_of_the_handler_keeps_a_connection_of_http_1_0_that_asks_for_it() -> None:
    async with wire(on_handle=lambda exchange: exchange.reply(Reply(200, b"ok"))) as gateway:
        client = await gateway.client()
        for _ in range(2):
            message = await client.ask(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
            assert message.header(b"connection") == b"keep-alive"
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.rest()).partition(b"\r\n\r\n")[2] == b"ok"


async def test_many_clients_share_the_upstream_connections() -> None:
    async with wire(echo) as gateway:
        clients = [await gateway.client() for _ in range(20)]
        for _ in range(3):
            for client in clients:
                assert (await client.ask(GET)).body == b"/"
        assert gateway.connections_made == 1
        for client in clients:
            client.writer.write(post(chunk(b"x")))
        for client in clients:
            assert (await client.response()).status == 200
        assert gateway.connections_made <= 20
        assert gateway.pools[0].idle == gateway.connections_made
