"""Bodies of tens of MiB: they arrive, are classified in turns, and small requests are answered meanwhile."""

import asyncio

import pytest

from gateway.hookcost.skim import skim

from .harness import CHAT, PATIENCE_S, PLAIN, House, error_of, house, request

MIB = 1 << 20
IMAGE = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}'


def images(count: int, size: int) -> bytes:
    """A chat body of so many base64 images of so many bytes."""
    parts = b",".join([IMAGE % (b"iVBORw0K" * (size // 8))] * count)
    return b'{"model":"m","messages":[{"role":"user","content":[%b]}],"max_tokens":5}' % parts


def turns_of(body: bytes) -> int:
    return sum(1 for _ in skim(body, prompt_text=False))


async def small_ones_meanwhile(running: House, body: bytes) -> tuple[int, int, bytes | None]:
    """Sends a large body and then small requests until it is answered.

    Returns how many small ones were answered between its arrival and its being routed, its status and pool.
    """
    large, small = await running.client(), await running.client()
    asked = running.asked
    answered = 0
    sending = asyncio.create_task(large.send(request(CHAT, body)))
    answer = asyncio.create_task(large.response())
    while not answer.done():
        async with asyncio.timeout(PATIENCE_S):
            assert (await small.ask(request(CHAT, PLAIN[CHAT]))).status == 200
        answered += 1
    await sending
    assert len(running.asked) > len(asked)
    message = await answer
    return answered, message.status, message.header(b"x-steplane-pool")


async def test_small_requests_are_answered_while_40_mib_of_images_are_classified() -> None:
    body = images(10, 4 * MIB)
    assert len(body) > 40 * MIB
    async with house() as running:
        classified: list[int] = []
        proxy = running.gateway._server.handler  # type: ignore[union-attr]
        begin = proxy._begin  # type: ignore[attr-defined]

        def counting(path: str, data: bytes) -> object:
            """Notes how many small requests were answered at the beginning and at the end of the classification."""
            begun = begin(path, data)
            if len(data) < MIB:
                return begun

            def turns():  # type: ignore[no-untyped-def]
                classified.append(len(running.asked))
                found = yield from begun
                classified.append(len(running.asked))
                return found

            return turns()

        proxy._begin = counting  # type: ignore[attr-defined]
        _, status, pool = await small_ones_meanwhile(running, body)
        assert (status, pool) == (200, b"interactive")
        before, after = classified
        assert after > before
        large = next(message for message in running.asked if len(message.body) > MIB)
        assert large.body.startswith(body[:-1])


async def test_a_body_just_below_the_limit_passes_and_one_above_it_does_not() -> None:
    limit = 64 * MIB
    frame = b'{"messages":[{"role":"user","content":"%b"}],"ebnf":"root ::= \\"a\\""}'
    body = frame % (b"x" * (limit - len(frame) + 2))
    assert len(body) == limit
    assert turns_of(body) > 10
    async with house() as running:
        answered, status, pool = await small_ones_meanwhile(running, body)
        assert (status, pool) == (200, b"quarantine")
        assert answered
        client = await running.client()
        await client.send(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), limit + 1))
        refused = await client.response()
        assert refused.status == 413
        assert error_of(refused)["code"] == "body_too_large"
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


@pytest.mark.parametrize("coding", ["content-length: 2001", "transfer-encoding: chunked"])
@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_above_the_configured_limit_is_413_however_it_is_framed(coding: str, path: str) -> None:
    async with house(limits={"max_body_bytes": 2000}) as running:
        client = await running.client()
        body = b"x" * 2001
        framed = b"7d1\r\n" + body + b"\r\n0\r\n\r\n" if "chunked" in coding else body
        await client.send(request(path, None, coding) + framed)
        answer = await client.response()
        assert answer.status == 413
        assert error_of(answer)["code"] == "body_too_large"
        assert (await running.ask(path, b"{}")).status == 200


async def test_several_large_bodies_take_turns() -> None:
    body = images(4, MIB)
    async with house() as running:
        clients = [await running.client() for _ in range(4)]
        for client in clients:
            await client.send(request(CHAT, body))
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert [(await client.response()).status for client in clients] == [200] * 4


async def test_a_large_body_that_is_broken_at_its_end_is_refused() -> None:
    async with house() as running:
        for body in (images(1, MIB)[:-1], images(1, MIB) + b"}", images(1, MIB)[:-2] + b',"n":"many"}'):
            answer = await running.ask(CHAT, body)
            assert answer.status == 400, body[-20:]
            assert error_of(answer)["code"] in ("invalid_json", "invalid_value")
        assert not running.asked


@pytest.mark.parametrize("field", [b'"key%d":1', b'"n":%d'])
async def test_a_body_of_very_many_fields_is_refused_and_holds_nobody_up(field: bytes) -> None:
    body = b"{%b}" % b",".join([field % index for index in range(300_000)])
    assert turns_of(body) > 50
    async with house() as running:
        large, small = await running.client(), await running.client()
        await large.send(request(CHAT, body))
        assert (await small.ask(request(CHAT, PLAIN[CHAT]))).status == 200
        answer = await large.response()
        assert (answer.status, error_of(answer)["code"]) == (400, "too_many_fields")
        many = b"{%b}" % b",".join([b'"key%05d":"%b"' % (index, b"x" * 20) for index in range(9_000)])
        assert turns_of(many) > 100
        assert (await running.ask(CHAT, many)).status == 200


@pytest.mark.parametrize("body", [b"%b{}", b"{%b}", b'{"a"%b:1}', b'{"a":%b1}', b'{"a":1%b}', b"{}%b"])
async def test_white_space_without_end_is_refused(body: bytes) -> None:
    async with house() as running:
        answer = await running.ask(CHAT, body % (b" " * 8 * MIB))
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_json")
        assert (await running.ask(CHAT, body % (b" " * (MIB // 2)))).status == 200
