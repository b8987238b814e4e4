"""A real Envoy asks the endpoint picker, and does what it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.envoy.site import MODES, SILENT, site
from tests.integration.gateway.harness import (
    CHAT,
    EVENT,
    LAST,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    saying,
)
from tests.integration.wire.harness import PATIENCE_S, until

in_each_mode = pytest.mark.parametrize("mode", MODES)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
STRUCTURED = {**PLAIN[CHAT], "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}


@in_each_mode
@pytest.mark.parametrize(("body", "pool"), [(PLAIN[CHAT], "interactive"), (STRUCTURED, "grammar")])
async def test_a_request_goes_where_the_rules_send_it(envoy: Path, mode: str, body: object, pool: str) -> None:
    async with site(envoy, mode) as there:
        answer = await there.client.post(CHAT, json=body, headers={"x-gateway-destination-endpoint": "127.0.0.1:1"})
        assert (answer.status_code, answer.content) == (200, b'{"ok":true}')
        assert answer.headers["x-steplane-pool"] == pool
        assert answer.headers["x-steplane-replica"] == f"{pool}-0"
        (message,) = there.house.engines[f"{pool}-0"].asked
        sent = json.loads(message.body)
        assert sent.pop("rid")
        assert sent == body
        await until(lambda: f"200 via_upstream pool={pool}" in there.log)
        await there.house.reaches("steplane_requests_total", 1, pool=pool)


@in_each_mode
async def test_a_stream_comes_event_by_event(envoy: Path, mode: str) -> None:
    engine = Held(SSE_HEAD + EVENT, EVENT + LAST)
    async with (
        site(envoy, mode, pools={"interactive": [Engine("interactive-0", engine)]}) as there,
        there.client.stream("POST", CHAT, json={**PLAIN[CHAT], "stream": True}) as answer,
    ):
        parts = answer.aiter_raw()
        assert await anext(parts) == b'data: {"n":1}\n\n'
        assert there.house.in_flight == 1
        engine.finish.set()
        assert [part async for part in parts] == [b'data: {"n":1}\n\n']
        await until(lambda: there.house.in_flight == 0)


@in_each_mode
async def test_who_leaves_a_stream_is_dropped_at_the_engine(envoy: Path, mode: str) -> None:
    engine = Held(SSE_HEAD + EVENT, EVENT + LAST)
    async with site(envoy, mode, pools={"interactive": [Engine("interactive-0", engine)]}) as there:
        async with there.client.stream("POST", CHAT, json={**PLAIN[CHAT], "stream": True}) as answer:
            await anext(answer.aiter_raw())
        await until(lambda: there.house.in_flight == 0)
        await until(lambda: bool(there.house.engines["interactive-0"].aborted))


@in_each_mode
async def test_what_the_rules_refuse_never_reaches_an_engine(envoy: Path, mode: str) -> None:
    async with site(envoy, mode) as there:
        answer = await there.client.post("/flush_cache")
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "control_path"
        answer = await there.client.post(CHAT, content=b"{", headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert not there.house.asked


@in_each_mode
async def test_an_error_of_an_engine_is_passed_on(envoy: Path, mode: str) -> None:
    error = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\noops"
    async with site(envoy, mode, pools={"interactive": [Engine("interactive-0", saying(error))]}) as there:
        answer = await there.client.post(CHAT, json=PLAIN[CHAT])
        assert (answer.status_code, answer.content) == (500, b"oops")
        assert answer.headers["x-steplane-replica"] == "interactive-0"
        await until(lambda: there.house.in_flight == 0)


@in_each_mode
async def test_a_large_body_gets_through(envoy: Path, mode: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    async with site(envoy, mode) as there:
        answer = await there.client.post(CHAT, json=body)
        assert answer.status_code == 200
        (message,) = there.house.asked
        assert json.loads(message.body)["messages"] == body["messages"]


@in_each_mode
async def test_a_body_of_unknown_length_gets_through(envoy: Path, mode: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"model": "m", '
        yield b'"messages": []}'

    async with site(envoy, mode) as there:
        answer = await there.client.post(CHAT, content=pieces(), headers={"content-type": "application/json"})
        assert answer.status_code == 200
        (message,) = there.house.asked
        assert json.loads(message.body)["model"] == "m"


@in_each_mode
async def test_what_asks_for_no_generation_passes(envoy: Path, mode: str) -> None:
    async with site(envoy, mode) as there:
        assert (await there.client.get("/v1/models")).status_code == 200
        assert (await there.client.post("/tokenize", json={"prompt": "a"})).status_code == 200
        assert [message.start for message in there.house.asked] == [
            b"GET /v1/models HTTP/1.1",
            b"POST /tokenize HTTP/1.1",
        ]


@in_each_mode
async def test_an_engine_that_is_silent_for_too_long_is_given_up(envoy: Path, mode: str) -> None:
    """An answer of ours comes while Envoy waits for the engine's."""
    engine = Held()
    pools = {"interactive": [Engine("interactive-0", engine)]}
    async with site(envoy, mode, pools=pools, timeouts={"first_byte_s": 0.3}) as there:
        answer = await there.client.post(CHAT, json=PLAIN[CHAT])
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "upstream_first_byte_timeout"
        await asyncio.wait_for(engine.left.wait(), PATIENCE_S)


@in_each_mode
async def test_a_dead_engine_is_envoys_to_report(envoy: Path, mode: str) -> None:
    pools = {"interactive": [Engine("interactive-0")]}
    async with site(envoy, mode, pools=pools, down=("interactive",)) as there:
        answer = await there.client.post(CHAT, json=PLAIN[CHAT])
        assert answer.status_code == 503
        await until(lambda: there.house.in_flight == 0)


@in_each_mode
async def test_a_stream_of_what_has_tripped_ends_with_an_error(envoy: Path, mode: str) -> None:
    engine = Held(SSE_HEAD + EVENT, EVENT + EVENT + LAST)
    pools = {"interactive": [Engine("interactive-0")], "grammar": [Engine("grammar-0", engine)]}
    async with site(envoy, mode, pools=pools) as there:
        async with there.client.stream("POST", CHAT, json={**STRUCTURED, "stream": True}) as answer:
            parts = answer.aiter_raw()
            await anext(parts)
            await there.house.bar(STRUCTURED)
            await until(lambda: bool(there.house.engines["grammar-0"].aborted))
            engine.finish.set()  # it stops, as engines do that are told to
            rest = b"".join([part async for part in parts])
        first, last, _ = rest.split(b"\n\n", 2)
        assert json.loads(first.removeprefix(b"data: "))["error"]["code"] == "step_budget_exceeded"
        assert last == b"data: [DONE]"
        refused = await there.client.post(CHAT, json=STRUCTURED)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "quarantined"
        assert int(refused.headers["retry-after"]) > 0


async def test_a_stream_that_envoy_tells_nothing_of_ends_when_it_ends(envoy: Path) -> None:
    engine = Held(SSE_HEAD + EVENT, EVENT + LAST)
    async with site(envoy, SILENT, pools={"interactive": [Engine("interactive-0", engine)]}) as there:
        async with there.client.stream("POST", CHAT, json={**PLAIN[CHAT], "stream": True}) as answer:
            parts = answer.aiter_raw()
            await anext(parts)
            assert there.house.in_flight == 1
            engine.finish.set()
            assert [part async for part in parts] == [b'data: {"n":1}\n\n']
        await there.house.reaches("steplane_requests_total", 1, pool="interactive", status="2xx")
        assert there.house.in_flight == 0
        assert not there.house.engines["interactive-0"].aborted
