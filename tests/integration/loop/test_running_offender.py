"""What runs of a signature when it trips: run again in quarantine, ended, or left alone."""

import asyncio
import json
from typing import Any

import pytest

from gateway.breaker.record import Kind, State
from tests.integration.gateway.harness import (
    ANSWER,
    CHAT,
    COMPLETIONS,
    EVENT,
    GENERATE,
    LAST,
    MESSAGES,
    RESPONSES,
    SSE_HEAD,
    Held,
    error_of,
    saying,
    stream,
)
from tests.integration.loop.harness import COSTLY, HARD_US, KINDS, Replica, Stage, pool_of, stage, street
from tests.integration.wire.harness import Client, Message, chunk, read_chunks, until

DIALECTS: dict[str, dict[str, Any]] = {
    CHAT: COSTLY,
    COMPLETIONS: COSTLY,
    RESPONSES: COSTLY,
    MESSAGES: {"stop_sequences": ["@@"]},
    GENERATE: {"sampling_params": {"stop": ["@@"]}},
}
"""How each spells a request with hooks."""
STREAMED = {"stream": True}
ENDED = b'{"error":{"message":"step_budget_exceeded: 40 ms of grammar_fill in one step","code":503}}'
ENDED_ANSWER = b"HTTP/1.1 503 Busy\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(ENDED),
    ENDED,
)
"""What an engine says whose watchdog ended a request."""


def on_trip(policy: str, **more: Any) -> dict[str, Any]:
    return {"interactive": {"breaker": {"on_trip": policy, **more}}}


async def began(on: Stage, held: Held, path: str = CHAT, **extra: Any) -> Client:
    """A request that the engine works on."""
    on.interactive.answer = held
    client = await on.begin(path, **extra)
    async with asyncio.timeout(20):
        await held.arrived.wait()
    return client


async def trips(on: Stage, replica: Replica | None = None, number: int = -1) -> str:
    """The last request that the engine was sent takes far too long in one step; its id."""
    replica = replica or on.interactive
    rid = engine_id(replica.asked[number])
    replica.says.steps(rid, HARD_US * 2)
    await until(lambda: bool(on.barred))
    return rid


def engine_id(message: Message) -> str:
    """By what was sent, or by the header where the body has no place for it."""
    fields = json.loads(message.body)
    rid = fields.get("rid") or fields.get("request_id")
    return str(rid) if rid else (message.header(b"x-request-id") or b"").decode()


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_before_its_first_byte_it_is_run_again_in_quarantine_and_the_client_sees_one_answer(
    path: str, streams: bool
) -> None:
    extra = DIALECTS[path] | (STREAMED if streams else {})
    async with stage() as on:
        on.quarantine.answer = stream if streams else saying(ANSWER)
        held = Held()
        client = await began(on, held, path, **extra)
        rid = await trips(on)
        answer = await client.response(b"POST")
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        assert answer.header(b"x-steplane-replica") == b"quarantine-0"
        assert answer.body == (b'data: {"n":1}\n\ndata: [DONE]\n\n' if streams else b'{"ok":true}')
        await held.left.wait()
        if path != MESSAGES:  # SGLang has no id for it: closing the connection is all that can be done
            await until(lambda: rid in on.interactive.aborted)
        assert on.quarantine.aborted == []
        assert len(on.quarantine.asked) == 1
        sent, again = json.loads(on.interactive.asked[0].body), json.loads(on.quarantine.asked[0].body)
        assert sent == again
        # The connection goes on.
        on.interactive.answer = saying(ANSWER)
        assert (await on.chat()).status == 200


def errors_in(path: str, events: bytes) -> list[dict[str, Any]]:
    """The error events at the end of a stream, as a client of the dialect reads them."""
    blocks = [block for block in events.decode().split("\n\n") if block]
    if path in (MESSAGES, RESPONSES):
        named = [block.split("\n", 1) for block in blocks if block.startswith("event: error\n")]
        assert len(named) == 1
        error = json.loads(named[0][1].removeprefix("data: "))
        assert error["type"] == "error"
        return [error.get("error", error)]
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: "))["error"] for block in blocks[:-1] if '"error"' in block]


@pytest.mark.parametrize("policy", ["rerun", "end"])
@pytest.mark.parametrize("path", DIALECTS)
async def test_after_its_first_byte_its_stream_ends_with_an_error_event_of_its_dialect(path: str, policy: str) -> None:
    async with stage(options=on_trip(policy)) as on:
        held = Held(SSE_HEAD + EVENT)
        client = await began(on, held, path, **DIALECTS[path], **STREAMED)
        await client.read_until(b'{"n":1}\n\n\r\n')
        rid = await trips(on)
        chunks, trailers = await read_chunks(client.reader)
        (error,) = errors_in(path, b"".join(chunks))
        assert "hard limit" in error["message"]
        assert "40 ms" in error["message"]
        if path != MESSAGES:
            assert error["code"] == "step_budget_exceeded"
            await until(lambda: rid in on.interactive.aborted)
        assert trailers == []
        await held.left.wait()
        assert on.quarantine.asked == []


async def test_a_stream_within_an_event_ends_behind_that_event() -> None:
    async with stage() as on:
        gate, left = asyncio.Event(), asyncio.Event()

        async def halves(served: Any, message: Message) -> None:
            await served.send(SSE_HEAD + chunk(b'data: {"n":'))
            await gate.wait()
            await served.send(chunk(b"1}\n\n"))
            await served.reader.read()
            left.set()

        on.interactive.answer = halves
        client = await on.begin(**COSTLY, **STREAMED)
        await client.read_until(b'{"n":\r\n')
        await trips(on)
        gate.set()
        chunks, _ = await read_chunks(client.reader)
        events = b"".join(chunks)
        assert events.startswith(b"1}\n\n")
        (error,) = errors_in(CHAT, events.removeprefix(b"1}\n\n"))
        assert error["code"] == "step_budget_exceeded"
        await left.wait()


async def test_an_answer_that_is_no_stream_and_has_begun_is_broken_off() -> None:
    async with stage() as on:
        held = Held(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"a":')
        client = await began(on, held, **COSTLY)
        await client.read_until(b'{"a":')
        rid = await trips(on)
        assert await client.rest() == b""
        await until(lambda: rid in on.interactive.aborted)
        assert on.quarantine.asked == []


async def test_by_policy_it_is_ended_before_its_first_byte_with_an_answer_that_says_why() -> None:
    async with stage(options=on_trip("end")) as on:
        client = await began(on, Held(), **COSTLY)
        rid = await trips(on)
        answer = await client.response(b"POST")
        assert answer.status == 429
        assert int(answer.header(b"retry-after") or 0) >= 1
        error = error_of(answer)
        assert error["code"] == "quarantined"
        assert error["details"]["cause"] == "hard_limit"
        assert error["details"]["observed"] == HARD_US * 2
        assert error["details"]["limit"] == HARD_US
        await until(lambda: rid in on.interactive.aborted)
        assert on.quarantine.asked == []


@pytest.mark.parametrize("begun", [False, True], ids=["before its first byte", "after it"])
async def test_by_policy_it_may_finish(begun: bool) -> None:
    async with stage(options=on_trip("let_finish")) as on:
        held = Held(SSE_HEAD + EVENT if begun else b"", LAST if begun else ANSWER)
        client = await began(on, held, **COSTLY)
        if begun:
            await client.read_until(b'{"n":1}\n\n\r\n')
        await trips(on)
        assert pool_of(await on.chat(**COSTLY)) == "quarantine"
        held.finish.set()
        if begun:
            assert await read_chunks(client.reader) == ([], [])
        else:
            answer = await client.response(b"POST")
            assert (answer.status, pool_of(answer)) == (200, "interactive")
        assert on.interactive.aborted == []


async def test_without_a_quarantine_pool_it_is_refused_before_its_first_byte() -> None:
    async with stage(street(quarantine=False)) as on:
        client = await began(on, Held(), **COSTLY)
        rid = await trips(on)
        answer = await client.response(b"POST")
        assert (answer.status, error_of(answer)["code"]) == (429, "quarantined")
        await until(lambda: rid in on.interactive.aborted)


async def test_with_quarantine_down_it_is_refused_before_its_first_byte() -> None:
    async with stage() as on:
        client = await began(on, Held(), **COSTLY)
        next(each for each in on.replicas if each.name == "quarantine-0").set_healthy(False)
        await trips(on)
        answer = await client.response(b"POST")
        assert (answer.status, error_of(answer)["code"]) == (503, "pool_unavailable")


async def test_its_batch_mates_go_on() -> None:
    async with stage() as on:
        held = Held(SSE_HEAD + EVENT, LAST)
        on.interactive.answer = held
        mates = [await on.begin(**extra, **STREAMED) for extra in ({}, *KINDS[1:])]
        await until(lambda: len(on.interactive.asked) == len(mates))
        offender = await on.begin(**COSTLY, **STREAMED)
        await until(lambda: len(on.interactive.asked) == len(mates) + 1)
        for client in (*mates, offender):
            await client.read_until(b'{"n":1}\n\n\r\n')
        rid = await trips(on)
        chunks, _ = await read_chunks(offender.reader)
        assert errors_in(CHAT, b"".join(chunks))
        held.finish.set()
        for mate in mates:
            assert await read_chunks(mate.reader) == ([], [])
        await until(lambda: rid in on.interactive.aborted)
        assert set(on.interactive.aborted) == {rid}


async def test_all_that_runs_of_it_is_ended_each_by_the_policy_of_its_pool() -> None:
    pools = {**street(interactive=2), "patient": [Replica("patient-0")]}
    options = on_trip("rerun") | {"patient": {"breaker": {"on_trip": "let_finish"}}}
    rules = [{"name": "patient", "when": {"model": "slow"}, "pool": "patient"}]
    async with stage(pools, options=options, rules=rules) as on:
        held = Held(b"", ANSWER)
        for replica in (*pools["interactive"], *pools["patient"]):
            replica.answer = held
        running = [await on.begin(**COSTLY) for _ in range(6)]
        await until(lambda: sum(len(each.asked) for each in pools["interactive"]) == 6)
        assert all(each.asked for each in pools["interactive"])
        await trips(on)
        for client in running:
            assert pool_of(await client.response(b"POST")) == "quarantine"
        assert len(on.quarantine.asked) == 6
        for each in pools["interactive"]:
            await until(lambda each=each: set(each.aborted) == set(each.rids))


async def test_what_runs_in_quarantine_is_left_alone() -> None:
    async with stage() as on:
        await on.trip(**COSTLY)
        held = Held(b"", ANSWER)
        on.quarantine.answer = held
        client = await on.begin(**COSTLY)
        rid = await on.quarantine.rid()
        for _ in range(5):
            on.quarantine.says.steps(rid, HARD_US * 3)
        await on.heard(on.quarantine)
        held.finish.set()
        assert (await client.response(b"POST")).status == 200
        assert on.quarantine.aborted == []
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trips == 1


@pytest.mark.parametrize("extra", [COSTLY, {}], ids=["with hooks", "plain"])
async def test_by_hand_it_is_ended_as_after_a_trip(extra: dict[str, Any]) -> None:
    async with stage() as on:
        client = await began(on, Held(), **extra)
        on.trust.add(Kind.signature, on.signature(**extra), author="kim", reason="bad news")
        answer = await client.response(b"POST")
        assert pool_of(answer) == "quarantine"


async def test_an_engine_that_aborted_it_first_changes_nothing() -> None:
    """The engine's own watchdog ends it, and its feed says so, in whichever order they are heard of."""
    async with stage() as on:
        held = Held(b"", ENDED_ANSWER)
        client = await began(on, held, **COSTLY)
        rid = on.interactive.rids[-1]
        on.interactive.says.offence(rid, "hard", HARD_US * 2, HARD_US)
        held.finish.set()
        answer = await client.response(b"POST")
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        await until(lambda: on.state(**COSTLY) is State.open)
        assert len(on.quarantine.asked) == 1
