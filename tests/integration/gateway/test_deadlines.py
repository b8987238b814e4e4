"""A request has so long, by its route or its client; when that is over it ends, here and at its engine."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from .harness import (
    ANSWER,
    CHAT,
    EVENT,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    error_of,
    hang_up,
    house,
    request,
    until,
)

HEADER = {"deadlines": {"header": "x-request-timeout"}}
SHORT = {"interactive": {"deadline_s": 1}}
"""Long enough for the engine to be asked."""


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("by", ["pool", "rule", "client", "client, sooner than its pool"])
async def test_a_request_that_is_not_answered_in_time_gets_an_error_and_the_engine_is_told(
    by: str, streamed: bool
) -> None:
    held = Held()
    rules = [{"name": "all", "pool": "interactive", "deadline_s": 1}] if by == "rule" else None
    options = {"pool": SHORT, "client, sooner than its pool": {"interactive": {"deadline_s": 30}}}.get(by)
    lines = ("x-request-timeout: 1",) if by.startswith("client") else ()
    async with house({"interactive": [Engine("a", held)]}, options=options, rules=rules, config=HEADER) as running:
        answer = await running.ask(CHAT, {**PLAIN[CHAT], "stream": streamed}, *lines)
        assert answer.status == 504
        assert error_of(answer)["code"] == "deadline_exceeded"
        assert "1 s" in error_of(answer)["message"]
        await asyncio.wait_for(held.left.wait(), 20)
        await until(lambda: len(running.engines["a"].aborted) == 1)
        assert running.available("a")
        assert await running.metric("steplane_deadlines_exceeded_total", pool="interactive") == 1
        assert await running.metric("steplane_upstream_errors_total") == 0


async def test_a_stream_that_takes_too_long_ends_with_an_event_and_correctly() -> None:
    held = Held(SSE_HEAD + EVENT)
    async with house({"interactive": [Engine("a", held)]}, options={"interactive": {"deadline_s": 2}}) as running:
        client = await running.client()
        await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
        assert (await client.head()).status == 200
        rest = await client.read_until(b"\r\n0\r\n\r\n")
        assert b'"code":"deadline_exceeded"' in rest
        assert rest.count(b"[DONE]") == 1
        await until(lambda: len(running.engines["a"].aborted) == 1)
        held.start, held.end = b"", ANSWER
        held.finish.set()
        await client.send(request(CHAT, PLAIN[CHAT]))
        assert (await client.response()).status == 200


async def test_a_request_that_waits_for_room_ends_in_time_too() -> None:
    held = Held(end=ANSWER)
    options = {"interactive": {"admission": {"max_in_flight": 1}, "deadline_s": 0.3}}
    rules = [{"name": "patient", "when": {"stop": True}, "pool": "interactive", "deadline_s": 30}]
    async with house({"interactive": [Engine("a", held)]}, options=options, rules=rules) as running:
        first = asyncio.create_task(running.ask(CHAT, {**PLAIN[CHAT], "stop": ["x"]}))
        await held.arrived.wait()
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, error_of(answer)["code"]) == (504, "deadline_exceeded")
        assert running.gateway.router.pools["interactive"].waiting == 0
        assert len(running.asked) == 1
        held.finish.set()
        assert (await first).status == 200


async def test_a_request_whose_retry_waits_ends_in_time_too() -> None:
    retry = {"back_off": {"first_s": 0.25, "factor": 1, "jitter": 0}, "attempts": 10}
    options = {"interactive": {"deadline_s": 2, "retry": retry}}
    async with house({"interactive": [Engine("a", hang_up)]}, options=options) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert answer.status in (502, 504)  # no retry is begun that would come too late
        assert 1 < len(running.asked) < 10


async def test_a_retry_has_what_is_left() -> None:
    engines = [Engine("a", hang_up), Engine("b")]
    retry = {"back_off": {"first_s": 0.3, "jitter": 0}}
    async with house({"interactive": engines}, options={"interactive": {"retry": retry}}, config=HEADER) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT], "x-request-timeout: 10")).status == 200
        first, second = (float(engine.asked[0].header(b"x-request-timeout") or b"") for engine in engines)
        assert 5.0 < first <= 10.0
        assert second <= first - 0.29


@pytest.mark.parametrize(
    ("said", "passed_on"),
    [
        (["X-Request-Timeout: 20"], (10.0, 20.0)),
        (["x-request-timeout: 3000"], (50.0, 60.0)),
        (["x-request-timeout: soon"], (50.0, 60.0)),
        ([], (50.0, 60.0)),
    ],
)
async def test_the_replica_hears_once_what_is_left(said: list[str], passed_on: tuple[float, float]) -> None:
    options = {"interactive": {"deadline_s": 60}}
    async with house({"interactive": [Engine("a")]}, options=options, config=HEADER) as running:
        client = await running.client()
        for number in range(3):  # the second one is recognised by its head, the third by its pieces
            await client.send(request(CHAT, PLAIN[CHAT], "x-keep: 1", *said, f"x-trace: {number}"))
            assert (await client.response()).status == 200
        for message in running.asked:
            (value,) = message.values(b"x-request-timeout")
            assert passed_on[0] < float(value) <= passed_on[1]
            assert message.values(b"x-keep") == [b"1"]
            assert "rid" in json.loads(message.body)


@pytest.mark.parametrize("config", [{}, {"deadlines": {"header": "x-other"}}])
async def test_a_header_that_is_not_the_one_is_passed_on_as_it_is(config: Mapping[str, Any]) -> None:
    async with house({"interactive": [Engine("a")]}, config=config) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT], "x-request-timeout: 0.000001")).status == 200
        assert running.asked[0].values(b"x-request-timeout") == [b"0.000001"]


async def test_what_streams_through_has_its_deadline_as_well() -> None:
    held = Held()
    async with house({"interactive": [Engine("a", held)]}, options=SHORT) as running:
        answer = await running.ask("/v1/embeddings", {"input": "x"})
        assert (answer.status, error_of(answer)["code"]) == (504, "deadline_exceeded")
        await asyncio.wait_for(held.left.wait(), 20)


async def test_in_time_nothing_happens_later() -> None:
    async with house({"interactive": [Engine("a")]}, options={"interactive": {"deadline_s": 1}}) as running:
        client = await running.client()
        for _ in range(3):
            await client.send(request(CHAT, PLAIN[CHAT]))
            assert (await client.response()).status == 200
        held = running.engines["a"].answer = Held(SSE_HEAD + EVENT)
        await client.send(request(CHAT, {**PLAIN[CHAT], "stream": True}))
        await client.read_until(b"deadline_exceeded")
        assert held.arrived.is_set()
        assert await running.metric("steplane_deadlines_exceeded_total") == 1
