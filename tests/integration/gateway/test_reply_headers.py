"""What the gateway adds to a reply: pool, route, replica and request id, each once; and which ids it accepts."""

import pytest

from .harness import CHAT, PLAIN, Engine, error_of, house, saying, stream, three_pools

ADDED = (b"x-steplane-pool", b"x-steplane-route", b"x-steplane-replica", b"x-request-id")


def reply(status: bytes, *lines: bytes, body: bytes = b"{}") -> bytes:
    head = b"\r\n".join((b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *lines))
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("status", [b"200 OK", b"201 Created", b"400 Bad Request", b"429 Busy", b"500 Oops", b"503 No"])
@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
async def test_every_reply_says_where_it_came_from(status: bytes, path: str) -> None:
    async with house(three_pools(saying(reply(status, b"x-engine: yes")))) as running:
        answer = await running.ask(path, PLAIN[CHAT])
        assert answer.status == int(status[:3])
        assert answer.body == b"{}"
        assert answer.header(b"x-engine") == b"yes"
        assert [answer.header(name) for name in ADDED[:3]] == [b"interactive", b"plain", b"interactive-0"]
        assert answer.header(b"x-request-id")


async def test_a_stream_and_a_bodiless_reply_say_so_too() -> None:
    async with house(three_pools(stream)) as running:
        streamed = await running.ask(CHAT, {**PLAIN[CHAT], "stream": True})
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert all(streamed.header(name) for name in ADDED)
        running.engines["interactive-0"].answer = saying(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
        bodiless = await running.ask("/v1/models", method="HEAD")
        assert all(bodiless.header(name) for name in ADDED)


async def test_a_refused_body_and_an_unavailable_pool_have_an_id() -> None:
    async with house(down=("grammar",)) as running:
        refused = await running.ask(CHAT, b"{", "x-request-id: mine-1")
        assert (refused.status, refused.header(b"x-request-id")) == (400, b"mine-1")
        for _ in range(2):
            unavailable = await running.ask(CHAT, {**PLAIN[CHAT], "json_schema": "{}"}, "x-request-id: mine-2")
            assert (unavailable.status, unavailable.header(b"x-request-id")) == (503, b"mine-2")


@pytest.mark.parametrize("given", ["mine", "a" * 128, "!~{}[]\"'", "0", "3f2b8c1e-0000-4000-8000-123456789abc"])
async def test_a_client_s_sane_id_is_echoed_and_sent_on(given: str) -> None:
    async with house() as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], f"X-Request-ID: {given}")
        assert answer.header(b"x-request-id") == given.encode()
        assert running.asked[0].header(b"x-request-id") == given.encode()


@pytest.mark.parametrize("given", ["", "a" * 129, "a b", "a\tb", "\u00e9", "a\u00ff", "a" * 5000])
async def test_an_id_that_could_do_harm_is_replaced(given: str) -> None:
    async with house() as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], f"x-request-id: {given}")
        made = answer.header(b"x-request-id")
        assert made
        assert made != given.encode("latin-1")
        assert made.isascii()
        assert len(made) <= 32
        assert running.asked[0].header(b"x-request-id") == made


@pytest.mark.parametrize("given", ["a\0b", "a\x01", "a\x1b[31m", "a\rx-evil: 1", "a\nx-evil: 1", "\x7f"])
async def test_control_characters_reach_nobody(given: str) -> None:
    async with house() as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], f"x-request-id: {given}")
        assert answer.header(b"x-evil") is None
        if answer.status != 400:
            assert answer.header(b"x-request-id") != given.encode()
            assert running.asked[0].header(b"x-request-id") == answer.header(b"x-request-id")
        else:
            assert error_of(answer)["code"] == "bad_http"
            assert not running.asked


async def test_the_engine_s_own_id_does_not_come_beside_ours() -> None:
    own = saying(reply(b"200 OK", b"X-Request-Id: the-engine-s"))
    async with house({"interactive": [Engine("one", own)]}) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT], "x-request-id: mine")
        assert answer.values(b"x-request-id") == [b"mine"]


async def test_ids_of_the_gateway_are_all_of_one_length_and_differ() -> None:
    """SGLang aborts every request whose id begins with the id it is told."""
    async with house() as running:
        client = await running.client()
        made = set()
        for _ in range(40):
            await client.send(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
            made.add((await client.response()).header(b"x-request-id"))
        assert len(made) == 40
        assert len({len(each or b"") for each in made}) == 1
