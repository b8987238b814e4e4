"""Start, drain and end: readiness tells the truth, running streams finish, and a failed start leaves nothing open."""

import asyncio
import json
import socket

import pytest

from gateway.app import Gateway
from gateway.control.config import parse_config

from .harness import (
    CHAT,
    EVENT,
    LAST,
    PATIENCE_S,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    error_of,
    house,
    request,
    three_pools,
    until,
)

STREAM = {**PLAIN[CHAT], "stream": True}


async def test_readiness_needs_a_pool_with_a_replica() -> None:
    async with house(down=("grammar", "quarantine")) as running:
        status, text = await running.admin("/readyz")
        assert (status, json.loads(text)["ready"]) == (200, True)
        await running.engines["interactive-0"].stop()
        for fields in ({}, {"json_schema": "{}"}, {"regex": "a"}):
            await running.ask(CHAT, {**PLAIN[CHAT], **fields})
        status, text = await running.admin("/readyz")
        assert status == 503
        assert json.loads(text)["pools"] == {"interactive": False, "grammar": False, "quarantine": False}


async def test_a_running_stream_finishes_while_draining_and_readiness_says_so() -> None:
    held = Held(SSE_HEAD + EVENT, EVENT + LAST)
    async with house(three_pools(held)) as running:
        client, idle = await running.client(), await running.client()
        await client.send(request(CHAT, STREAM))
        assert (await client.head()).status == 200
        await until(lambda: running.gateway._server is not None and len(running.gateway._server.connections) == 2)
        draining = asyncio.create_task(running.gateway.drain())
        await until(lambda: running.gateway.draining)
        status, text = await running.admin("/readyz")
        assert (status, json.loads(text)["reason"]) == (503, "draining")
        assert (await running.admin("/healthz"))[0] == 200
        await idle.closed()
        with pytest.raises(ConnectionError):
            await running.client()
        assert not draining.done()
        assert running.in_flight == 1
        held.finish.set()
        assert (await client.rest()).endswith(LAST)
        await asyncio.wait_for(draining, PATIENCE_S)
        assert running.in_flight == 0


async def test_a_stream_that_does_not_finish_in_time_ends_with_an_error_and_its_engine_is_told() -> None:
    held = Held(SSE_HEAD + EVENT)
    async with house(three_pools(held), timeouts={"drain_s": 0.1}) as running:
        client = await running.client()
        await client.send(request(CHAT, STREAM))
        assert (await client.head()).status == 200
        assert await client.read(len(EVENT)) == EVENT
        await running.gateway.drain()
        assert b'"code":"draining"' in await client.rest()
        await asyncio.wait_for(held.left.wait(), PATIENCE_S)
        engine = running.engines["interactive-0"]
        await until(lambda: engine.aborted == [json.loads(engine.asked[0].body)["rid"]])
        assert await running.metric("steplane_upstream_errors_total") == 0
        assert running.in_flight == 0


async def test_a_request_that_is_not_answered_in_time_is_told_so() -> None:
    held = Held()
    async with house(three_pools(held), timeouts={"drain_s": 0.1}) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT]))
        await held.arrived.wait()
        await running.gateway.drain()
        answer = await client.response()
        assert (answer.status, error_of(answer)["code"]) == (503, "draining")
        assert running.in_flight == 0


async def test_a_request_that_is_classified_or_waits_for_its_engine_is_finished_while_draining() -> None:
    held = Held(end=SSE_HEAD + EVENT + LAST)
    async with house(three_pools(held)) as running:
        client = await running.client()
        await client.send(request(CHAT, STREAM))
        await held.arrived.wait()
        draining = asyncio.create_task(running.gateway.drain())
        await until(lambda: running.gateway.draining)
        held.finish.set()
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.endswith(LAST)
        await asyncio.wait_for(draining, PATIENCE_S)


async def test_what_does_not_finish_in_time_is_cut_and_its_engine_is_left() -> None:
    held = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", held)]}, timeouts={"drain_s": 0.05}) as running:
        client = await running.client()
        await client.send(request(CHAT, STREAM))
        await client.head()
        await asyncio.wait_for(running.gateway.drain(), PATIENCE_S)
        await asyncio.wait_for(held.left.wait(), PATIENCE_S)
        await until(lambda: bool(running.engines["a"].aborted))


@pytest.mark.parametrize("taken", ["data", "admin"])
async def test_a_port_in_use_is_an_error_that_leaves_nothing_open(taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        busy_port, free_port = busy.getsockname()[1], free.getsockname()[1]
        free.close()
        data, admin = (busy_port, free_port) if taken == "data" else (free_port, busy_port)
        config = {
            "listen": f"127.0.0.1:{data}",
            "admin": {"listen": f"127.0.0.1:{admin}"},
            "default_pool": "only",
            "pools": {"only": {"replicas": ["http://127.0.0.1:9"]}},
        }
        gateway = Gateway(parse_config(json.dumps(config)))
        with pytest.raises(OSError, match="in use"):
            await gateway.start()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", free_port)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        await gateway.close()


async def test_closing_twice_and_before_the_start_is_harmless() -> None:
    async with house() as running:
        await running.gateway.close()
        await running.gateway.close()
    await Gateway(running.gateway.config).close()
