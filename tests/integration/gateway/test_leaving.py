"""A client that leaves: the engine's connection is closed, and SGLang is told which requests nobody waits for."""

import asyncio
import json
from typing import Any

import pytest

from .harness import (
    ANSWER,
    CHAT,
    COMPLETIONS,
    EVENT,
    GENERATE,
    MESSAGES,
    PATIENCE_S,
    PLAIN,
    RESPONSES,
    SSE_HEAD,
    Engine,
    Held,
    House,
    chunk,
    house,
    request,
    until,
)


async def left(held: Held) -> None:
    await asyncio.wait_for(held.left.wait(), PATIENCE_S)


async def counted(running: House, **requests: str) -> None:
    """Check that one request was counted as left by its client."""
    await until(lambda: running.in_flight == 0)
    assert await running.metric("steplane_in_flight_requests") == 0
    assert await running.metric("steplane_client_disconnects_total") == 1
    assert await running.metric("steplane_requests_total", **requests) == 1
    assert await running.metric("steplane_upstream_errors_total") == 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("path", "fields", "suffixes"),
    [
        (CHAT, {}, [""]),
        (COMPLETIONS, {}, ["", "_0"]),
        (COMPLETIONS, {"prompt": ["a"]}, ["", "_0"]),
        (COMPLETIONS, {"prompt": ["a", "b", "c"]}, ["_0", "_1", "_2"]),
        (GENERATE, {"text": ["a", "b"]}, ["_0", "_1"]),
        (RESPONSES, {}, ["", "_0"]),
        (MESSAGES, {}, [""]),
    ],
)
async def test_before_the_first_byte_the_engine_is_told_the_ids_it_runs_the_request_under(
    path: str, fields: dict[str, Any], suffixes: list[str], streamed: bool
) -> None:
    held = Held()
    async with house({"interactive": [Engine("a", held)]}) as running:
        engine = running.engines["a"]
        client = await running.client()
        await client.send(request(path, {**PLAIN[path], **fields, "stream": streamed}, "x-request-id: mine"))
        await held.arrived.wait()
        assert running.in_flight == 1
        client.close()
        await left(held)
        sent = json.loads(engine.asked[0].body)
        header = engine.asked[0].header(b"x-steplane-rid")
        engine_id = header.decode() if header else sent.get("rid") or sent["request_id"]
        await until(lambda: len(engine.aborted) == len(suffixes))
        assert engine.aborted == [engine_id + suffix for suffix in suffixes]
        await counted(running, status="0xx", pool="interactive", rule="plain")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"n": 2}),
        (COMPLETIONS, {"prompt": ["a", "b"], "n": 3}),
        (GENERATE, {"sampling_params": {"n": 2}}),
        (CHAT, {"rid": "mine"}),
        ("/v1/embeddings", {}),
    ],
)
async def test_a_request_without_an_id_of_ours_is_ended_by_closing_its_connection(
    path: str, fields: dict[str, Any]
) -> None:
    held = Held()
    async with house({"interactive": [Engine("a", held)]}) as running:
        client = await running.client()
        await client.send(request(path, {**PLAIN.get(path, {}), **fields}))
        await held.arrived.wait()
        client.close()
        await left(held)
        await counted(running, status="0xx")
        assert running.engines["a"].aborted == []


@pytest.mark.parametrize("engine", ["vllm", "other"])
async def test_only_sglang_is_told(engine: str) -> None:
    held = Held()
    async with house({"interactive": [Engine("a", held)]}, options={"interactive": {"engine": engine}}) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT]))
        await held.arrived.wait()
        client.close()
        await left(held)
        await counted(running)
        assert running.engines["a"].aborted == []


@pytest.mark.parametrize("reset", [False, True])
async def test_in_the_middle_of_a_stream_the_engine_is_told_too(reset: bool) -> None:
    held = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", held)]}) as running:
        client = await running.client()
        await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
        assert (await client.head()).status == 200
        if reset:
            client.reset()
        else:
            client.close()
        await left(held)
        await until(lambda: len(running.engines["a"].aborted) == 1)
        await counted(running, status="2xx")


async def test_a_client_that_took_its_whole_answer_left_nothing_behind() -> None:
    async with house() as running:
        await running.ask(CHAT, PLAIN[CHAT])
        assert await running.metric("steplane_client_disconnects_total") == 0
        assert all(not engine.aborted for engine in running.engines.values())


async def test_a_client_that_closes_at_the_last_event_of_a_stream_has_not_left() -> None:
    """Many stop reading at `[DONE]` and never see the last chunk."""
    held = Held(SSE_HEAD + EVENT + chunk(b"data: [DONE]\n\n"))
    async with house({"interactive": [Engine("a", held)]}) as running:
        client = await running.client()
        await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
        await client.read_until(b"[DONE]\n\n")
        client.close()
        await left(held)
        await until(lambda: running.in_flight == 0)
        assert await running.metric("steplane_client_disconnects_total") == 0
        assert running.engines["a"].aborted == []


async def test_the_others_on_the_same_replica_go_on() -> None:
    """Seventeen requests, of whose ids the engine must not take one for the beginning of another."""
    held = Held(end=ANSWER)
    async with house({"interactive": [Engine("a", held)]}) as running:
        engine = running.engines["a"]
        clients = [await running.client() for _ in range(17)]
        for client in clients:
            held.arrived.clear()
            await client.send(request(CHAT, PLAIN[CHAT]))
            await held.arrived.wait()
        clients[0].close()
        await until(lambda: len(engine.aborted) == 1)
        ids = [json.loads(message.body)["rid"] for message in engine.asked]
        assert [each for each in ids if each.startswith(engine.aborted[0])] == [ids[0]]
        held.finish.set()
        for client in clients[1:]:
            assert (await client.response()).status == 200


async def test_a_client_that_leaves_while_its_request_is_being_retried_is_forgotten() -> None:
    held = Held()

    async with house({"interactive": [Engine("a"), Engine("b", held)]}) as running:
        await running.engines["a"].stop()
        clients = [await running.client() for _ in range(2)]
        for client in clients:
            await client.send(request(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.engines["b"].asked) == 2)
        for client in clients:
            client.close()
        await until(lambda: len(running.engines["b"].aborted) == 2)
        assert running.in_flight == 0


async def test_a_client_that_leaves_while_its_large_body_is_classified_is_forgotten() -> None:
    async with house() as running:
        for _ in range(5):
            client = await running.client()
            await client.send(request(CHAT, {"messages": [{"role": "user", "content": ["\\"] * 300_000}]}))
            client.reset()
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


async def test_an_engine_that_is_gone_itself_cannot_be_told_and_harms_nobody() -> None:
    held = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", held)]}) as running:
        clients = [await running.client() for _ in range(2)]
        for client in clients:
            await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
            await client.head()
        await running.engines["a"].stop()
        clients[0].close()
        assert b"upstream_died" in await clients[1].read_until(b"\r\n0\r\n\r\n")
        await until(lambda: running.in_flight == 0)
        assert (await running.admin("/healthz"))[0] == 200
