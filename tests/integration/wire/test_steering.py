"""What a handler may do with an exchange that runs: hold an error back, take the request back, end its response."""

import asyncio

import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import error_reply

from .harness import ERROR_EVENT, OK, SSE_HEAD, Served, Wire, answering, chunk, post, until, wire

BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy"
BUSY_CHUNKED = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n2\r\nbu\r\n2\r\nsy\r\n0\r\n\r\n"
BUSY_UNTIL_CLOSE = b"HTTP/1.1 503 Busy\r\n\r\nbusy"
ENDED = Failure(FailureKind.ended, "over its budget")


def to_the_other(gateway: Wire) -> None:
    """Whatever is held back is tried on the second upstream."""

    def retry(exchange: Exchange, status: int, message: bytes) -> None:
        exchange.forward(gateway.pools[1])

    gateway.handler.on_refused = retry


# --- held back


@pytest.mark.parametrize("response", [BUSY, BUSY_CHUNKED])
async def test_a_response_that_was_held_back_reaches_the_client_as_it_came(response: bytes) -> None:
    async with wire(answering(response)) as gateway:
        gateway.handler.held = frozenset({503})
        client = await gateway.client()
        for _ in range(2):
            answer = await client.ask(post(b"x"))
            assert (answer.status, answer.body) == (503, b"busy")
        assert gateway.connections_made == 1
        assert [exchange.status for exchange in gateway.handler.over] == [503, 503]


async def test_one_that_ends_with_its_connection_does_too() -> None:
    async with wire(answering(BUSY_UNTIL_CLOSE, then_close=True)) as gateway:
        gateway.handler.held = frozenset({503})
        answer = await (await gateway.client()).ask(post(b"x"))
        assert (answer.status, answer.body) == (503, b"busy")


@pytest.mark.parametrize("response", [BUSY, BUSY_CHUNKED])
async def test_the_client_sees_nothing_of_it_when_another_upstream_answers(response: bytes) -> None:
    async with wire(answering(response), answering(OK)) as gateway:
        gateway.handler.held = frozenset({503})
        to_the_other(gateway)
        client = await gateway.client()
        for _ in range(2):
            answer = await client.ask(post(b"hello"))
            assert (answer.status, answer.body, answer.header(b"retry-after")) == (200, b"ok", None)
        assert [request.body for request in gateway.requests] == [b"hello"] * 4
        assert gateway.connections_made == 2


async def test_the_handler_may_answer_instead() -> None:
    async with wire(answering(BUSY)) as gateway:
        gateway.handler.held = frozenset({503})
        gateway.handler.on_refused = lambda exchange, status, message: exchange.reply(error_reply(429, "later", "x"))
        assert (await (await gateway.client()).ask(post(b"x"))).status == 429


async def test_a_handler_that_raises_is_answered_for() -> None:
    def raising(exchange: Exchange, status: int, message: bytes) -> None:
        raise RuntimeError("broken")

    async with wire(answering(BUSY)) as gateway:
        gateway.handler.held = frozenset({503})
        gateway.handler.on_refused = raising
        assert (await (await gateway.client()).ask(post(b"x"))).status == 500


@pytest.mark.parametrize("status", [200, 404])
async def test_what_the_handler_does_not_want_to_see_is_not_held_back(status: int) -> None:
    response = b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nok" % status
    async with wire(answering(response)) as gateway:
        gateway.handler.held = frozenset({503})
        assert (await (await gateway.client()).ask(post(b"x"))).status == status
        assert not gateway.handler.refusals


async def test_an_error_of_many_bytes_is_passed_on_as_it_comes() -> None:
    body = b"x" * 1_000_000
    response = b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with wire(answering(response)) as gateway:
        gateway.handler.held = frozenset({503})
        answer = await (await gateway.client()).ask(post(b"x"))
        assert (answer.status, answer.body) == (503, body)
        assert not gateway.handler.refusals


async def test_an_upstream_that_dies_in_what_is_held_back_is_a_failed_attempt() -> None:
    async with wire(answering(BUSY[:-1], then_close=True)) as gateway:
        gateway.handler.held = frozenset({503})
        assert (await (await gateway.client()).ask(post(b"x"))).status == 502
        assert [failure.kind for failure in gateway.handler.failures] == [FailureKind.died]


async def test_a_client_that_leaves_while_a_response_is_held_back_ends_the_exchange() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(BUSY[:-1])
        await asyncio.Event().wait()

    async with wire(script) as gateway:
        gateway.handler.held = frozenset({503})
        client = await gateway.client()
        await client.send(post(b"x"))
        await until(lambda: bool(gateway.requests))
        client.close()
        await gateway.finished()
        assert gateway.handler.over[0].client_left


# --- taken back


async def test_a_request_that_was_taken_back_is_answered_by_whom_it_is_sent_to_next() -> None:
    async def silent(served: Served) -> None:
        await served.request()
        await asyncio.Event().wait()

    async with wire(silent, answering(OK)) as gateway:
        client = await gateway.client()
        await client.send(post(b"hello"))
        await until(lambda: bool(gateway.requests))
        exchange = gateway.handler.handled[0]
        assert exchange.withdraw()
        exchange.forward(gateway.pools[1])
        assert (await client.response()).body == b"ok"
        assert [request.body for request in gateway.requests] == [b"hello", b"hello"]
        assert not gateway.handler.failures


async def test_nothing_is_taken_back_once_an_answer_has_begun() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD)
        await asyncio.Event().wait()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await client.head()
        assert not gateway.handler.handled[0].withdraw()


async def test_nothing_is_taken_back_after_the_end() -> None:
    async with wire(answering(OK)) as gateway:
        await (await gateway.client()).ask(post(b"x"))
        await gateway.finished()
        assert not gateway.handler.handled[0].withdraw()


# --- ended


async def test_a_stream_is_ended_by_an_event_and_a_correct_end() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await served.closed()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await client.head()
        assert await client.read(len(chunk(b"data: 1\n\n"))) == chunk(b"data: 1\n\n")
        gateway.handler.handled[0].end(ENDED)
        assert await client.read_until(b"0\r\n\r\n") == chunk(ERROR_EVENT) + b"0\r\n\r\n"
        assert gateway.handler.over[0].failure is ENDED


@pytest.mark.parametrize("rest", [b"ta: 1\n\n\r\n", b"ta: 1\n\n\r\n9\r\ndata: 2\n\n\r\n"])
async def test_an_event_that_has_begun_is_completed_first(rest: bytes) -> None:
    sent = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + b"9\r\nda")
        await sent.wait()
        await served.send(rest)
        await served.closed()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await client.head()
        assert await client.read(5) == b"9\r\nda"
        gateway.handler.handled[0].end(ENDED)
        sent.set()
        assert await client.read_until(b"0\r\n\r\n") == rest + chunk(ERROR_EVENT) + b"0\r\n\r\n"


async def test_a_stream_that_ends_by_itself_meanwhile_just_ends() -> None:
    sent = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + b"9\r\nda")
        await sent.wait()
        await served.send(b"ta: 1\n\n\r\n0\r\n\r\n")
        await served.request()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await client.head()
        await client.read(5)
        gateway.handler.handled[0].end(ENDED)
        sent.set()
        assert await client.read_until(b"0\r\n\r\n") == b"ta: 1\n\n\r\n0\r\n\r\n"
        assert gateway.handler.over[0].failure is None


async def test_a_client_may_go_on_after_a_stream_that_was_ended() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        await served.closed()

    async with wire(script) as gateway:
        client = await gateway.client()
        for count in range(3):
            await client.send(post(b"x"))
            await client.head()
            await client.read(len(chunk(b"data: 1\n\n")))
            gateway.handler.handled[count].end(ENDED)
            assert await client.read_until(b"0\r\n\r\n") == chunk(ERROR_EVENT) + b"0\r\n\r\n"


async def test_an_event_that_is_never_completed_is_not_waited_for_forever() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD + b"9\r\nda")
        await served.closed()

    async with wire(script) as gateway:
        client = await gateway.client()
        await client.send(post(b"x"))
        await client.head()
        await client.read(5)
        gateway.handler.handled[0].end(ENDED)
        assert await client.rest() == b""
        assert gateway.handler.over[0].failure is ENDED


async def test_the_handler_is_told_of_each_read_of_a_response_it_follows() -> None:
    reads: list[float] = []

    async def script(served: Served) -> None:
        await served.request()
        await served.send(SSE_HEAD)
        for count in range(3):
            await served.send(chunk(b"data: %d\n\n" % count))
            await until(lambda count=count: len(reads) > count)
        await served.send(b"0\r\n\r\n")

    def follow(exchange: Exchange) -> None:
        exchange.on_read = reads.append
        gateway.handler.forward(exchange)

    async with wire(script) as gateway:
        gateway.handler.on_handle = follow
        await (await gateway.client()).ask(post(b"x"))
    assert len(reads) >= 3
    assert reads == sorted(reads)
