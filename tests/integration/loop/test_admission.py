"""The step budget of a replica as requests meet it: who runs, who waits, who is told to come back."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.integration.gateway.harness import ANSWER, CHAT, LAST, SSE_HEAD, Held, error_of, request
from tests.integration.loop.harness import COSTLY, HARD_US, Stage, pool_of, stage, stays, street
from tests.integration.wire.harness import Client, read_chunks, until

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STRUCTURED = {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}
COST_US = 1.206
"""Of `COSTLY`, by the price list; the tests ask the gateway and compare."""


def budget(costs: float, **admission: Any) -> dict[str, Any]:
    """A step budget for so many `COSTLY` requests at a time; nothing is observed, so that prices stay."""
    return {
        "interactive": {
            "step_budget_us": COST_US * costs,
            "hard_limit_us": HARD_US,
            "feed": "off",
            "admission": admission,
        },
        "quarantine": {"feed": "off"},
    }


def blind(replicas: int = 1) -> Any:
    return street(interactive=replicas, feed=False)


async def running(on: Stage, held: Held, count: int, *lines: str, **extra: Any) -> list[Client]:
    """So many requests that have come as far as they get; which of them run is for the test to see."""
    for replica in on.pools["interactive"]:
        replica.answer = held
    there = asked(on) + waiting(on)
    clients = [await on.begin(CHAT, *lines, **extra) for _ in range(count)]
    await until(lambda: asked(on) + waiting(on) == there + count)
    return clients


def waiting(on: Stage) -> int:
    return on.gateway.router.pools["interactive"].waiting


def asked(on: Stage) -> int:
    return sum(len(each.asked) for each in on.pools["interactive"])


async def finish(held: Held, clients: Sequence[Client]) -> None:
    held.finish.set()
    for client in clients:
        answer = await client.response(b"POST")
        assert (answer.status, pool_of(answer)) == (200, "interactive")


def test_the_price_that_these_tests_count_with_is_the_gateways() -> None:
    async def ask() -> None:
        async with stage(blind(), options=budget(1)) as on:
            assert on.classified(**COSTLY).cost.step_us == pytest.approx(COST_US)

    asyncio.run(ask())


async def test_the_sum_of_costs_on_each_replica_stays_within_its_budget_and_the_rest_get_their_turn() -> None:
    async with stage(blind(2), options=budget(3)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 10, **COSTLY)
        await until(lambda: waiting(on) == 4)
        await until(lambda: [len(each.asked) for each in on.pools["interactive"]] == [3, 3])
        await stays(lambda: asked(on) == 6)
        for replica in on.replicas:
            assert replica.booked_us <= COST_US * 3 + 1e-6
        await finish(held, clients)
        await until(lambda: asked(on) == 10)


async def test_one_that_ends_makes_room_for_one_that_waits() -> None:
    async with stage(blind(), options=budget(1)) as on:
        served: list[asyncio.Event] = []

        async def one_by_one(connection: Any, message: Any) -> None:
            served.append(asyncio.Event())
            await served[-1].wait()
            await connection.send(ANSWER)

        on.interactive.answer = one_by_one
        clients = []
        for count in range(5):
            clients.append(await on.begin(**COSTLY))
            await until(lambda count=count: waiting(on) == count and bool(served))
        for number, client in enumerate(clients):
            await until(lambda number=number: len(served) == number + 1)
            await stays(lambda number=number: len(served) == number + 1, turns=5)
            served[number].set()
            assert (await client.response(b"POST")).status == 200


async def test_a_client_that_leaves_makes_room_too() -> None:
    async with stage(blind(), options=budget(1)) as on:
        first, second = await running(on, Held(b"", ANSWER), 2, **COSTLY)
        await until(lambda: waiting(on) == 1 and asked(on) == 1)
        first.close()
        await until(lambda: asked(on) == 2)
        second.close()


async def test_what_costs_nothing_never_waits() -> None:
    async with stage(blind(), options=budget(1)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        plain = [await on.begin() for _ in range(5)]
        await until(lambda: asked(on) == 6)
        assert waiting(on) == 2
        models = await on.client()
        on.interactive.answer = held
        await models.send(request("/v1/models", method="GET"))
        await until(lambda: asked(on) == 7)
        held.finish.set()
        for client in (*plain, models):
            assert (await client.response(b"POST")).status == 200
        await finish(held, clients)


async def test_one_too_big_for_any_budget_runs_alone_rather_than_never() -> None:
    big = {"n": 4, "stop": ["@@"]}
    async with stage(blind(), options=budget(2)) as on:
        assert on.classified(**big).cost.step_us > COST_US * 2
        small, late = Held(b"", ANSWER), Held(b"", ANSWER)
        clients = await running(on, small, 1, **COSTLY)
        await until(lambda: asked(on) == 1)
        on.interactive.answer = late
        giant = await on.begin(**big)
        await until(lambda: waiting(on) == 1)
        await finish(small, clients)
        await until(lambda: asked(on) == 2)
        others = [await on.begin(**COSTLY) for _ in range(2)]
        await until(lambda: waiting(on) == 2)
        assert [each.booked for each in on.replicas if each.pool == "interactive"] == [1]
        await finish(late, [giant, *others])


async def test_a_full_queue_answers_429_and_a_late_one_503_and_both_say_when_to_come_back() -> None:
    async with stage(blind(), options=budget(1, queue=2)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        full = await on.chat(**COSTLY)
        assert (full.status, error_of(full)["code"]) == (429, "queue_full")
        assert "step budget" in error_of(full)["message"]
        assert int(full.header(b"retry-after") or 0) >= 1
        await finish(held, clients)
    async with stage(blind(), options=budget(1, queue=2, max_wait_s=0.3)) as on:
        held = Held(b"", ANSWER)
        first = await running(on, held, 1, **COSTLY)
        for client in [await on.begin(**COSTLY) for _ in range(2)]:
            late = await client.response(b"POST")
            assert (late.status, error_of(late)["code"]) == (503, "queue_timeout")
            assert int(late.header(b"retry-after") or 0) >= 1
            assert late.header(b"x-steplane-route") == b"default"
            assert late.header(b"x-request-id")
        await until(lambda: asked(on) == 1)
        await finish(held, first)


async def test_nobody_waits_where_none_may() -> None:
    async with stage(blind(), options=budget(1, queue=0)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 1, **COSTLY)
        await until(lambda: asked(on) == 1)
        assert (await on.chat(**COSTLY)).status == 429
        await finish(held, clients)


async def test_of_a_client_that_leaves_while_it_waits_no_engine_hears() -> None:
    async with stage(blind(), options=budget(1)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 4, **COSTLY)
        await until(lambda: waiting(on) == 3)
        for client in clients[1:3]:
            client.close()
        await until(lambda: waiting(on) == 1)
        await finish(held, [clients[0], clients[3]])
        await until(lambda: asked(on) == 2)
        assert on.interactive.aborted == []


async def test_no_more_structured_requests_run_on_a_replica_than_are_allowed() -> None:
    options = budget(1e6, max_structured=2)
    async with stage(blind(), options=options) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 5, **STRUCTURED)
        await until(lambda: waiting(on) == 3)
        await until(lambda: asked(on) == 2)
        others = [await on.begin(**COSTLY), await on.begin()]
        await until(lambda: asked(on) == 4)
        await finish(held, [*clients, *others])


async def test_no_more_requests_run_on_a_replica_than_are_allowed() -> None:
    async with stage(blind(2), options=budget(1e6, max_in_flight=2)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 7)
        await until(lambda: waiting(on) == 3)
        await until(lambda: [len(each.asked) for each in on.pools["interactive"]] == [2, 2])
        await finish(held, clients)


async def test_tenants_take_turns_however_many_requests_one_of_them_has_in_line() -> None:
    async with stage(blind(), options=budget(1), tenants={"header": "x-tenant"}) as on:
        order: list[str] = []
        gate = asyncio.Event()

        async def noted(connection: Any, message: Any) -> None:
            order.append((message.header(b"x-tenant") or b"").decode())
            await gate.wait()
            await connection.send(ANSWER)

        on.interactive.answer = noted
        clients = [await on.begin(CHAT, "x-tenant: many", **COSTLY) for _ in range(10)]
        await until(lambda: waiting(on) == 9)
        clients += [await on.begin(CHAT, "x-tenant: few", **COSTLY) for _ in range(3)]
        await until(lambda: waiting(on) == 12)
        gate.set()
        for client in clients:
            assert (await client.response(b"POST")).status == 200
        assert order.count("few") == 3
        assert max(place for place, tenant in enumerate(order) if tenant == "few") <= 7


async def test_those_that_wait_go_to_quarantine_when_their_signature_trips() -> None:
    pools = street()
    options = {"interactive": {"step_budget_us": 10.0, "hard_limit_us": HARD_US, "admission": {"max_in_flight": 1}}}
    async with stage(pools, options=options) as on:
        held = Held(b"", ANSWER)
        offender, *others = await running(on, held, 4, **COSTLY)
        await until(lambda: waiting(on) == 3)
        on.interactive.says.steps(on.interactive.rids[0], HARD_US * 2)
        for client in (offender, *others):
            answer = await client.response(b"POST")
            assert (answer.status, pool_of(answer)) == (200, "quarantine")
        await until(lambda: asked(on) == 1)


async def test_those_that_wait_are_refused_when_their_signature_trips_where_the_pool_refuses() -> None:
    options = {
        "interactive": {"admission": {"max_in_flight": 1}, "breaker": {"on_open": "refuse", "on_trip": "let_finish"}}
    }
    async with stage(options=options) as on:
        held = Held(b"", ANSWER)
        first, *others = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        on.interactive.says.steps(on.interactive.rids[0], HARD_US * 2)
        # At once: not when there is room for them at last.
        for client in others:
            answer = await client.response(b"POST")
            assert (answer.status, error_of(answer)["code"]) == (429, "quarantined")
        await until(lambda: asked(on) == 1)
        await finish(held, [first])


async def test_what_was_observed_of_a_signature_counts_and_not_what_was_predicted() -> None:
    """Seen to take 400 µs of 1,000, only two of them run at a time, though ten thousand were predicted to fit."""
    async with stage() as on:
        await on.chat(**COSTLY)
        rid = on.interactive.rids[-1]
        for _ in range(40):
            on.interactive.says.rollup(rid, 50, 400.0)
        await on.heard(on.interactive)
        blended = on.oversight.book.blended(on.classified(**COSTLY))
        assert 350 < blended.step_us < 450
        held = Held(b"", ANSWER)
        clients = await running(on, held, 5, **COSTLY)
        await until(lambda: waiting(on) == 3)
        await until(lambda: asked(on) == 3)
        await finish(held, clients)


async def test_a_pool_whose_last_replica_goes_lets_those_that_wait_know() -> None:
    async with stage(blind(), options=budget(1)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        next(each for each in on.replicas if each.pool == "interactive").set_healthy(False)
        for client in clients[1:]:
            answer = await client.response(b"POST")
            assert (answer.status, error_of(answer)["code"]) == (503, "pool_unavailable")
        held.finish.set()
        assert (await clients[0].response(b"POST")).status == 200


async def test_draining_serves_those_that_wait() -> None:
    async with stage(blind(), options=budget(1)) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        draining = asyncio.create_task(on.gateway.drain())
        await until(lambda: on.gateway.draining)
        held.finish.set()
        for client in clients:
            assert (await client.response(b"POST")).status == 200
        await draining
        await until(lambda: asked(on) == 3)


async def test_a_drain_that_takes_too_long_ends_with_those_that_wait() -> None:
    async with stage(blind(), options=budget(1), timeouts={"drain_s": 0.2}) as on:
        held = Held(b"", ANSWER)
        clients = await running(on, held, 3, **COSTLY)
        await until(lambda: waiting(on) == 2)
        began = time.monotonic()
        await on.gateway.drain()
        await on.gateway.close()
        assert time.monotonic() - began < 5
        for client in clients:
            answer = await client.response(b"POST")
            assert (answer.status, error_of(answer)["code"]) == (503, "draining")
            await client.closed()
        await until(lambda: asked(on) == 1)


async def test_a_stream_holds_its_room_until_its_last_byte() -> None:
    async with stage(blind(), options=budget(1)) as on:
        held = Held(SSE_HEAD, LAST)
        first, second = await running(on, held, 2, **COSTLY, stream=True)
        await first.read_until(b"\r\n\r\n")
        await until(lambda: waiting(on) == 1)
        await stays(lambda: asked(on) == 1)
        held.finish.set()
        assert await read_chunks(first.reader) == ([], [])
        assert (await second.response(b"POST")).status == 200
