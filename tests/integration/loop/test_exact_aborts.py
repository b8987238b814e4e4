"""A request that runs under an id of its client's is aborted through the step feed, which means exactly that one."""

import asyncio
from typing import Any

import pytest

from tests.integration.gateway.harness import CHAT, COMPLETIONS, EVENT, PLAIN, SSE_HEAD, Held, request
from tests.integration.loop.harness import Stage, stage, street
from tests.integration.wire.harness import until


async def left(on: Stage, held: Held, path: str, fields: dict[str, Any], *lines: str) -> None:
    """A client asks and leaves."""
    client = await on.client()
    await client.send(request(path, PLAIN[path] | fields, *lines))
    await asyncio.wait_for(held.arrived.wait(), 20)
    client.close()
    await asyncio.wait_for(held.left.wait(), 20)
    await until(lambda: on.in_flight == 0)


@pytest.mark.parametrize(
    ("path", "fields", "ids"),
    [
        (CHAT, {"rid": "mine"}, ["mine"]),
        (CHAT, {"rid": "mine", "stream": True}, ["mine"]),
        (COMPLETIONS, {"prompt": ["a", "b"], "rid": ["x", "y"]}, ["x", "y"]),
    ],
)
async def test_by_the_ids_that_the_client_chose(path: str, fields: dict[str, Any], ids: list[str]) -> None:
    held = Held(SSE_HEAD + EVENT if fields.get("stream") else b"")
    async with stage(street(held), options={"interactive": {"feed_token": "secret"}}) as on:
        await on.heard(on.interactive)
        await left(on, held, path, fields)
        await until(lambda: on.interactive.says.aborted == ids)
        assert set(on.interactive.says.shown) == {"bearer secret"}
        assert on.interactive.aborted == []  # which takes every id that begins with one


async def test_by_what_the_engine_made_of_the_id_where_a_record_has_told_it() -> None:
    held = Held()
    async with stage(street(held), options={"interactive": {"engine": "vllm"}}) as on:
        await on.heard(on.interactive)
        client = await on.client()
        await client.send(request(CHAT, PLAIN[CHAT] | {"stop": ["@@"]}, "x-request-id: mine"))
        await asyncio.wait_for(held.arrived.wait(), 20)
        on.interactive.says.steps("chatcmpl-mine-01234567", 10.0)
        running = on.gateway._server.handler._running  # type: ignore[union-attr]
        await until(lambda: running.sequence_ids("mine") != ())
        client.close()
        await until(lambda: on.interactive.says.aborted == ["chatcmpl-mine-01234567"])


async def test_without_a_feed_the_closed_connection_has_to_do() -> None:
    held = Held()
    async with stage(street(held, feed=False)) as on:
        await left(on, held, CHAT, {"rid": "mine"})
        assert on.interactive.aborted == []


async def test_an_id_of_ours_is_aborted_at_the_engine_as_ever() -> None:
    held = Held()
    async with stage(street(held)) as on:
        await on.heard(on.interactive)
        await left(on, held, CHAT, {})
        await until(lambda: len(on.interactive.aborted) == 1)
        assert on.interactive.says.aborted == []
