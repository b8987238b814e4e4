"""A second replica is asked where the first is late: one answer goes out, and the other engine is told to stop."""

import asyncio
import json
from typing import Any

import pytest

from .harness import (
    ANSWER,
    CHAT,
    EVENT,
    LAST,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    House,
    Message,
    Served,
    chunk,
    error_of,
    hang_up,
    house,
    ok,
    request,
    saying,
    until,
)

AT_ONCE = {"after_s": 0.02, "max_share": 1}
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy"
EVENT_DATA = b'data: {"n":1}\n\n'
STREAM = {**PLAIN[CHAT], "stream": True}


def options(**hedge: Any) -> dict[str, dict[str, Any]]:
    return {"interactive": {"hedge": {**AT_ONCE, **hedge}}}


def two(first: Any, second: Any) -> dict[str, list[Engine]]:
    """The first request goes to `a`."""
    return {"interactive": [Engine("a", first), Engine("b", second)]}


async def hedges(running: House, **outcomes: float) -> None:
    for outcome in ("sent", "won", "lost", "failed", "took_over", "no_replica", "over_share"):
        await running.reaches("steplane_hedges_total", outcomes.get(outcome, 0), outcome=outcome)
    await until(lambda: running.in_flight == 0)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_second_one_answers_first_and_the_first_is_ended(streamed: bool) -> None:
    held = Held()
    answer = saying(SSE_HEAD + EVENT + EVENT + LAST) if streamed else ok
    async with house(two(held, answer), options=options()) as running:
        got = await running.ask(CHAT, STREAM if streamed else PLAIN[CHAT], "x-request-id: mine")
        assert got.status == 200
        assert got.body == (EVENT_DATA * 2 if streamed else b'{"ok":true}')
        assert got.values(b"x-steplane-replica") == [b"b"]
        assert got.values(b"x-steplane-attempts") == [b"2"]
        assert got.values(b"x-request-id") == [b"mine"]
        await asyncio.wait_for(held.left.wait(), 20)
        a, b = running.engines["a"], running.engines["b"]
        ids = [json.loads(engine.asked[0].body)["rid"] for engine in (a, b)]
        assert ids[0] != ids[1]
        await until(lambda: a.aborted == [ids[0]])
        assert b.aborted == []
        await hedges(running, sent=1, won=1)
        assert await running.metric("steplane_requests_total", status="2xx") == 1


async def test_an_answer_that_won_is_the_last_one_where_the_first_would_have_been() -> None:
    async with house(two(Held(), ok), options=options(), limits={"max_requests_per_connection": 1}) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).header(b"connection") == b"close"
        await hedges(running, sent=1, won=1)


async def test_a_stream_that_won_goes_on_to_its_end_and_the_connection_to_the_next_request() -> None:
    slow = Held(SSE_HEAD + EVENT, EVENT + LAST)
    async with house(two(Held(), slow), options=options()) as running:
        client = await running.client()
        await client.send(request(CHAT, STREAM))
        assert (await client.head()).status == 200
        assert b'"n":1' in await client.read_until(EVENT)
        slow.finish.set()
        assert await client.read_until(LAST) == EVENT + LAST
        await hedges(running, sent=1, won=1)
        for engine in running.engines.values():
            engine.answer = ok
        await client.send(request(CHAT, PLAIN[CHAT]))
        assert (await client.response()).status == 200


async def test_the_first_one_answers_after_all_and_the_second_is_ended() -> None:
    first, second = Held(end=ANSWER), Held()
    async with house(two(first, second), options=options()) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await asyncio.wait_for(second.arrived.wait(), 20)
        assert running.in_flight == 2
        first.finish.set()
        answer = await asking
        assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"a"])
        assert answer.header(b"x-steplane-attempts") is None
        await asyncio.wait_for(second.left.wait(), 20)
        b = running.engines["b"]
        await until(lambda: b.aborted == [json.loads(b.asked[0].body)["rid"]])
        assert running.engines["a"].aborted == []
        await hedges(running, sent=1, lost=1)


async def test_a_quick_answer_is_not_hedged() -> None:
    async with house(two(ok, ok), options=options(after_s=30)) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        assert len(running.asked) == 1
        await hedges(running)


@pytest.mark.parametrize("failing", [hang_up, saying(BUSY), saying(b"ICY 200\r\n\r\n")])
async def test_a_second_one_that_fails_leaves_the_first_alone(failing: Any) -> None:
    first = Held(end=ANSWER)
    async with house(two(first, failing), options=options()) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_hedges_total", 1, outcome="failed")
        first.finish.set()
        answer = await asking
        assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"a"])
        await hedges(running, sent=1, failed=1)


async def test_a_second_replica_that_refuses_connections_leaves_the_first_alone() -> None:
    first = Held(end=ANSWER)
    async with house(two(first, ok), options=options(after_s=0.1)) as running:
        await running.engines["b"].stop()
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_hedges_total", 1, outcome="failed")
        assert not running.available("b")
        first.finish.set()
        assert (await asking).status == 200
        await hedges(running, sent=1, failed=1)


@pytest.mark.parametrize("end", [b"", BUSY])
async def test_where_the_first_fails_the_second_is_waited_for(end: bytes) -> None:
    first, second = Held(end=end), Held(end=ANSWER)
    async with house(two(first, second), options=options()) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await asyncio.wait_for(second.arrived.wait(), 20)
        first.finish.set()
        await until(lambda: running.in_flight == 1)
        second.finish.set()
        answer = await asking
        assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"b"])
        assert len(running.asked) == 2
        await hedges(running, sent=1, took_over=1)


async def test_where_the_first_fails_a_second_that_has_no_connection_yet_is_waited_for() -> None:
    rules = [
        {"name": "hedged", "when": {"path": CHAT}, "pool": "interactive", "hedge": AT_ONCE},
        {"name": "rest", "pool": "interactive"},
    ]
    one = {"interactive": {"upstream": {"max_connections": 1}}}
    occupied, first = Held(end=ANSWER), Held()
    async with house(two(occupied, first), rules=rules, options=one) as running:
        other = asyncio.create_task(running.ask("/v1/completions", PLAIN["/v1/completions"]))
        await asyncio.wait_for(occupied.arrived.wait(), 20)
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_hedges_total", 1, outcome="sent")
        first.finish.set()
        await running.reaches("steplane_hedges_total", 1, outcome="took_over")
        assert len(running.asked) == 2
        occupied.finish.set()
        answer = await asking
        assert (answer.status, answer.values(b"x-steplane-replica")) == (200, [b"a"])
        assert (await other).status == 200


async def test_where_both_fail_the_client_is_told() -> None:
    first, second = Held(), Held()
    async with house(two(first, second), options=options()) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await asyncio.wait_for(second.arrived.wait(), 20)
        first.finish.set()
        await until(lambda: running.in_flight == 1)
        second.finish.set()
        answer = await asking
        assert answer.status == 502
        assert error_of(answer)["code"] == "upstream_closed_early"
        await hedges(running, sent=1, took_over=1)


async def test_a_second_one_without_a_byte_in_time_is_given_up_like_a_first() -> None:
    first, second = Held(), Held()
    async with house(two(first, second), options=options(), timeouts={"first_byte_s": 0.8}) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await asyncio.wait_for(second.arrived.wait(), 20)
        answer = await asking
        assert answer.status == 504
        await asyncio.wait_for(second.left.wait(), 20)
        await hedges(running, sent=1, took_over=1)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_client_that_leaves_ends_both(answered: bool) -> None:
    first, second = Held(), Held(SSE_HEAD + EVENT if answered else b"")
    async with house(two(first, second), options=options()) as running:
        client = await running.client()
        await client.send(request(CHAT, STREAM))
        await asyncio.wait_for(second.arrived.wait(), 20)
        if answered:
            await client.read_until(EVENT)
        client.close()
        for held in (first, second):
            await asyncio.wait_for(held.left.wait(), 20)
        await until(lambda: all(len(engine.aborted) == 1 for engine in running.engines.values()))
        await hedges(running, sent=1, **({"won": 1} if answered else {"lost": 1}))
        assert await running.metric("steplane_client_disconnects_total") == 1


async def test_a_deadline_ends_both() -> None:
    first, second = Held(), Held()
    both = {"interactive": {"hedge": AT_ONCE, "deadline_s": 0.8}}
    async with house(two(first, second), options=both) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])
        assert (answer.status, error_of(answer)["code"]) == (504, "deadline_exceeded")
        for held in (first, second):
            await asyncio.wait_for(held.left.wait(), 20)
        await hedges(running, sent=1, lost=1)


@pytest.mark.parametrize(
    ("path", "body", "hedge"),
    [
        ("/v1/embeddings", {"input": "x"}, {}),  # read and passed on piece by piece
        (CHAT, {**PLAIN[CHAT], "logprobs": True, "top_logprobs": 5}, {}),  # costs the step thread something
        (CHAT, PLAIN[CHAT], {"max_share": 0}),
    ],
)
async def test_what_is_not_to_be_sent_twice_is_not(path: str, body: Any, hedge: dict[str, Any]) -> None:
    held = Held(end=ANSWER)
    rules = [{"name": "all", "pool": "interactive"}]
    async with house(two(held, held), options=options(**hedge), rules=rules) as running:
        asking = asyncio.create_task(running.ask(path, body))
        await held.arrived.wait()
        await asyncio.sleep(0.1)  # five times as long as a hedge would take: nothing is to be waited for
        assert len(running.asked) == 1
        held.finish.set()
        assert (await asking).status == 200


async def test_a_costly_request_is_sent_twice_where_the_pool_says_so() -> None:
    body = {**PLAIN[CHAT], "logprobs": True, "top_logprobs": 5}
    rules = [{"name": "all", "pool": "interactive"}]
    async with house(two(Held(), ok), options=options(max_step_us=1e9), rules=rules) as running:
        assert (await running.ask(CHAT, body)).values(b"x-steplane-replica") == [b"b"]
        await hedges(running, sent=1, won=1)


async def test_no_more_are_sent_than_their_share() -> None:
    held = Held(end=ANSWER)
    async with house(two(held, held), options=options(max_share=0.0001)) as running:
        asking = [asyncio.create_task(running.ask(CHAT, PLAIN[CHAT])) for _ in range(4)]
        await running.reaches("steplane_hedges_total", 3, outcome="over_share")
        held.finish.set()
        assert [(await each).status for each in asking] == [200] * 4
        assert await running.metric("steplane_hedges_total", outcome="sent") == 1


async def test_a_hedge_takes_from_the_retry_budget() -> None:
    held = Held(end=ANSWER)
    both = {"interactive": {"hedge": AT_ONCE, "retry": {"budget": {"ratio": 0, "min_per_s": 0}}}}
    async with house(two(held, held), options=both) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_retry_budget_exhausted_total", 1)
        held.finish.set()
        assert (await asking).status == 200
        assert len(running.asked) == 1


async def test_with_one_replica_there_is_nobody_else_to_ask() -> None:
    held = Held(end=ANSWER)
    async with house({"interactive": [Engine("a", held)]}, options=options()) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_hedges_total", 1, outcome="no_replica")
        held.finish.set()
        assert (await asking).status == 200


async def test_a_hundred_late_streams_come_through_whole() -> None:
    """Some of them by their second attempt, whose head and events come in pieces of their own."""

    async def late(served: Served, message: Message) -> None:
        await asyncio.sleep(0.03)
        await pieces(served, message)

    async def pieces(served: Served, message: Message) -> None:
        await served.send(SSE_HEAD[:20])
        await served.send(SSE_HEAD[20:])
        for number in range(5):
            await served.send(chunk(b"data: %d\n\n" % number))
        await served.send(LAST)

    wanted = b"".join(b"data: %d\n\n" % number for number in range(5))
    async with house(two(late, late), options=options(after_s=0.015)) as running:
        answers = await asyncio.gather(*[running.ask(CHAT, STREAM) for _ in range(100)])
        assert {(answer.status, answer.body) for answer in answers} == {(200, wanted)}
        await until(lambda: running.in_flight == 0)
