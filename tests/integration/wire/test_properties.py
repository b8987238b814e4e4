"""Whatever comes, however it is cut: the upstream sees the same messages, and the server neither crashes nor hangs."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.wire.limits import Limits
from gateway.wire.message import Headers

from .harness import GET, OK, Message, Served, answering, chunk, until, wire

SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """One loop for all examples."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def run(runner: asyncio.Runner, example: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await example

    runner.run(bounded())


TOKENS = st.text("abcXYZ019-_", min_size=1, max_size=12).map(str.encode)
VALUES = st.binary(max_size=30).map(lambda raw: bytes(byte for byte in raw if 0x20 < byte < 0x7F or byte > 0x7F))


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]:
    """A valid request: its bytes, and the start line, headers and body that an upstream should see."""
    target = b"/" + b"/".join(draw(st.lists(TOKENS, max_size=3)))
    headers = [(b"x-" + name.lower(), value) for name, value in draw(st.lists(st.tuples(TOKENS, VALUES), max_size=4))]
    body = draw(st.binary(max_size=300))
    method = draw(st.sampled_from([b"POST", b"PUT", b"PATCH"]))
    lines = b"".join(
        b"%b:%b%b\r\n" % (name, draw(st.sampled_from([b"", b" ", b"\t "])), value) for name, value in headers
    )
    start = b"%b %b HTTP/1.1\r\n" % (method, target)
    hop = draw(st.sampled_from([b"", b"connection: keep-alive\r\n", b"te: trailers\r\n"]))
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
        pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
        coded = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces if piece)
        trailer = draw(st.sampled_from([b"", b"x-trailer: 1\r\n"]))
        framed = b"transfer-encoding: chunked\r\n\r\n" + coded + b"0\r\n" + trailer + b"\r\n"
    else:
        framed = b"content-length: %d\r\n\r\n%b" % (len(body), body)
    return start + b"host: a\r\n" + hop + lines + framed, start.strip(), headers, body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def essence(message: Message) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    return message.start, ordered([header for header in message.headers if header[0].startswith(b"x-")]), message.body


def ordered(headers: Headers) -> Headers:
    """Headers by name: only the order of equal names means something (RFC 9110 section 5.3)."""
    return sorted(headers, key=lambda header: header[0])


@SETTINGS
@given(
    sequence=st.lists(requests(), min_size=1, max_size=4),
    places=st.lists(st.integers(0, 10_000), max_size=12),
    buffering=st.booleans(),
)
def test_any_cut_of_valid_requests_gives_the_upstream_the_same_messages(
    runner: asyncio.Runner, sequence: list[Any], places: list[int], buffering: bool
) -> None:
    async def example() -> None:
        async with wire(answering(OK), buffering=buffering) as gateway:
            client = await gateway.client()
            for part in cut(b"".join(request[0] for request in sequence), places):
                client.writer.write(part)
                await client.turn()
            for _ in sequence:
                assert (await client.response()).body == b"ok"
            assert [essence(message) for message in gateway.requests] == [
                (start, ordered(headers), body) for _, start, headers, body in sequence
            ]

    run(runner, example())


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid response and its body."""
    body = draw(st.binary(max_size=300))
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"]))
    if draw(st.booleans()):
        return interim + b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body), body
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    coded = b"".join(chunk(piece) for piece in pieces if piece) + b"0\r\n\r\n"
    return interim + b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + coded, body


@SETTINGS
@given(
    sequence=st.lists(st.tuples(responses(), st.lists(st.integers(0, 1000), max_size=6)), min_size=1, max_size=4),
    old=st.booleans(),
)
def test_any_cut_of_valid_responses_gives_the_client_the_same_bodies(
    runner: asyncio.Runner, sequence: list[Any], old: bool
) -> None:
    async def example() -> None:
        async def script(served: Served) -> None:
            while True:
                await served.request()
                (response, _), places = sequence[len(gateway.requests) - 1]
                for part in cut(response, places):
                    await served.send(part)
                    await served.turn()

        async with wire(script) as gateway:
            client = await gateway.client()
            for (_, body), _ in sequence:
                if old:
                    client = await gateway.client()
                    await client.send(b"GET / HTTP/1.0\r\n\r\n")
                    assert (await client.rest()).partition(b"\r\n\r\n")[2] == body
                else:
                    assert (await client.ask(GET)).body == body

    run(runner, example())


WORDS = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"HEAD * HTTP/1.1\r\n",
        b"host: a\r\n",
        b"content-length: 5\r\n",
        b"Content-Length: 0\r\n",
        b"content-length: \r\n",
        b"transfer-encoding: chunked\r\n",
        b"connection: close\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"expect: 100-continue\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b"\0",
        b" ",
        b":",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"0\r\n",
        b"ffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"content-type: text/event-stream\r\n",
    ]
)
NOISE = st.lists(st.one_of(WORDS, WORDS, WORDS, st.binary(max_size=20)), max_size=25).map(b"".join)
LAST = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
LIMITS = Limits(max_header_bytes=1000, max_body_bytes=1000)


@SETTINGS
@given(noise=NOISE, places=st.lists(st.integers(0, 10_000), max_size=6), buffering=st.booleans())
def test_noise_from_a_client_neither_crashes_nor_hangs_the_server(
    runner: asyncio.Runner, noise: bytes, places: list[int], buffering: bool
) -> None:
    async def example() -> None:
        async with wire(answering(OK), limits=LIMITS, buffering=buffering) as gateway:
            client = await gateway.client()
            with contextlib.suppress(ConnectionError):
                for part in cut(noise, places):
                    await client.send(part)
                    await client.turn()
                await until(lambda: len(gateway.handler.over) == len(gateway.handler.handled))
                client.writer.write_eof()
                received = await client.rest()
                assert not received or received.startswith(b"HTTP/1.1 ")
            for message in gateway.requests:
                assert message.start.endswith(b" HTTP/1.1")
                assert len(message.values(b"host")) == 1
            assert (await (await gateway.client()).ask(GET)).body == b"ok"

    run(runner, example())


@SETTINGS
@given(noise=NOISE, places=st.lists(st.integers(0, 10_000), max_size=6), old=st.booleans())
def test_noise_from_an_upstream_neither_crashes_nor_hangs_the_server(
    runner: asyncio.Runner, noise: bytes, places: list[int], old: bool
) -> None:
    async def example() -> None:
        async def script(served: Served) -> None:
            await served.request()
            for part in cut(noise, places):
                await served.send(part)
                await served.turn()

        async with wire(script, answering(OK)) as gateway:
            client = await gateway.client()
            await client.send(b"GET / HTTP/1.0\r\n\r\n" if old else LAST)
            with contextlib.suppress(ConnectionError):
                received = await client.rest()
                assert not received or received.startswith(b"HTTP/1.1 ")
            await gateway.finished()
            gateway.handler.upstreams = gateway.pools[1:]
            assert (await (await gateway.client()).ask(GET)).body == b"ok"

    run(runner, example())
