"""The simplest way through: one request to an upstream, one response back, connections kept on both sides."""

import pytest

from .harness import GET, OK, answering, post, wire


async def test_a_request_reaches_the_upstream_and_its_response_the_client() -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        response = await client.ask(post(b"hello", b"/v1/x?y=1"))
        assert (response.start, response.body) == (b"HTTP/1.1 200 OK", b"ok")


@pytest.mark.parametrize("request_bytes", [GET, post(b"x"), post(b"x" * 200_000)])
async def test_connections_are_kept_on_both_sides(request_bytes: bytes) -> None:
    async with wire(answering(OK)) as gateway:
        client = await gateway.client()
        for _ in range(3):
            assert (await client.ask(request_bytes)).body == b"ok"
        assert gateway.connections_made == 1
        assert len(gateway.server.connections) == 1
