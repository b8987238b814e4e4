"""Interim responses (1xx): what a replica says before its response goes on to whoever understands it."""

import pytest

from gateway.wire.failure import FailureKind

from .harness import GET, OK, Served, answering, post, wire

EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
OLD_GET = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "request_bytes", "seen"),
    [
        (EARLY + OK, GET, [103]),
        (PROCESSING + EARLY + EARLY + OK, GET, [102, 103, 103]),
        (b"HTTP/1.1 199 Something New\r\nx: 1\r\n\r\n" + OK, GET, [199]),
        (CONTINUE + OK, GET, []),
        (CONTINUE + EARLY + OK, GET, [103]),
        (EARLY + OK, post(b"abc"), [103]),
        (EARLY + PROCESSING + OK, OLD_GET, []),
    ],
    ids=["103", "several", "unknown", "100", "100 and 103", "with a body", "HTTP/1.0"],
)
async def test_interim_responses_go_on_but_for_100(response: bytes, request_bytes: bytes, seen: list[int]) -> None:
    async with wire(answering(response)) as gateway:
        client = await gateway.client()
        for _ in range(2):
            assert (await client.ask(request_bytes)).body == b"ok"
            assert [message.status for message in client.interim] == seen
        assert gateway.connections_made == 1


async def test_they_come_before_the_response_is_there_and_without_hop_by_hop_headers() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(EARLY)
        await served.read_until(b"go on")
        await served.send(OK)

    async with wire(script, buffering=False) as gateway:
        client = await gateway.client()
        await client.send(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        hints = await client.head()
        assert (hints.status, hints.headers) == (103, [(b"link", b"</style.css>; rel=preload")])
        (connection,) = [exchange.connection for exchange in gateway.handler.handled]
        assert connection is not None
        connection.write_body(b"go on")
        assert (await client.response()).body == b"ok"


@pytest.mark.parametrize("interim", [CONTINUE, EARLY, PROCESSING], ids=["100", "103", "102"])
async def test_a_request_of_which_there_was_an_interim_response_is_not_taken_for_unread(interim: bytes) -> None:
    """On a reused connection a close without a response means a race with the server's idle limit; not so here."""

    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)
        await served.request()
        await served.send(interim)

    async with wire(script) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).status == 200
        assert (await client.ask(GET)).status == 502
        assert gateway.handler.failures[0].kind == FailureKind.closed_early


async def test_an_answer_of_another_upstream_may_follow() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(EARLY)

    async with wire(script, answering(OK)) as gateway:
        client = await gateway.client()
        assert (await client.ask(GET)).body == b"ok"
        assert [message.status for message in client.interim] == [103]


async def test_a_response_to_head_may_have_them_too() -> None:
    async with wire(answering(EARLY + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as gateway:
        client = await gateway.client()
        message = await client.ask(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", b"HEAD")
        assert (message.status, message.header(b"content-length")) == (200, b"5")
        assert len(client.interim) == 1
