"""What engines answer, and who is blamed for it: the client, nobody, the replica, or the kind of request."""

import asyncio
from typing import Any

import pytest

from gateway.breaker.replicastates import ReplicaState
from tests.integration.gateway.harness import ANSWER, EVENT, LAST, SSE_HEAD, Answer, Held, hang_up, ok, saying
from tests.integration.loop.harness import COSTLY, KINDS, Replica, Stage, pool_of, stage, stays, street
from tests.integration.wire.harness import Message, Served, chunk, until


def answer_of(status: int, body: bytes = b'{"error":{"message":"no"}}', *lines: str) -> bytes:
    head = "\r\n".join(
        [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(body)}", *lines]
    )
    return head.encode() + b"\r\n\r\n" + body


OVER_BUDGET = b'{"object":"error","message":"step_budget_exceeded: 60 ms in one step","code":503}'


def replica_state(on: Stage, name: str) -> ReplicaState:
    pool = next(replica.pool for replica in on.replicas if replica.name == name)
    breaker = on.oversight._replicas[name].breaker
    assert breaker.pool == pool
    return breaker.state(name)


def states(on: Stage) -> set[ReplicaState]:
    return {replica_state(on, replica.name) for replica in on.replicas}


# --- the engine's own watchdog


@pytest.mark.parametrize("status", [500, 503])
async def test_what_an_engine_ended_over_its_budget_is_run_again_in_quarantine(status: int) -> None:
    async with stage() as on:
        on.interactive.answer = saying(answer_of(status, OVER_BUDGET))
        answer = await on.chat(**COSTLY)
        assert (answer.status, pool_of(answer), answer.body) == (200, "quarantine", b'{"ok":true}')
        assert answer.header(b"x-steplane-replica") == b"quarantine-0"
        # One answer alone does not trip: what the feed says of the step does.
        assert on.barred == set()


@pytest.mark.parametrize(
    ("extra", "options"),
    [
        ({}, {}),
        (COSTLY, {"interactive": {"breaker": {"on_trip": "end"}}}),
        (COSTLY, {"interactive": {"breaker": {"on_trip": "let_finish"}}}),
    ],
    ids=["asks for no hooks", "policy end", "policy let_finish"],
)
async def test_else_what_the_engine_says_is_passed_on(extra: dict[str, Any], options: Any) -> None:
    async with stage(street(interactive=2), options=options) as on:
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(503, OVER_BUDGET, "retry-after: 7"))
        answer = await on.chat(**extra)
        assert (answer.status, answer.body) == (503, OVER_BUDGET)
        assert answer.header(b"retry-after") == b"7"
        assert sum(len(each.asked) for each in on.pools["interactive"]) == 1
        assert on.quarantine.asked == []


async def test_it_is_run_again_once_whatever_quarantine_says_of_it() -> None:
    async with stage() as on:
        for replica in (on.interactive, on.quarantine):
            replica.answer = saying(answer_of(503, OVER_BUDGET))
        answer = await on.chat(**COSTLY)
        assert (answer.status, pool_of(answer), answer.body) == (503, "quarantine", OVER_BUDGET)
        assert (len(on.interactive.asked), len(on.quarantine.asked)) == (1, 1)


async def test_being_over_the_budget_is_not_the_replicas_fault() -> None:
    async with stage(street(interactive=2)) as on:
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(500, OVER_BUDGET))
        for number in range(30):
            await on.chat(**KINDS[number % len(KINDS)])
        assert states(on) == {ReplicaState.closed}


# --- back-pressure


@pytest.mark.parametrize("status", [429, 503])
async def test_what_one_replica_is_too_busy_for_another_one_does(status: int) -> None:
    async with stage(street(interactive=2)) as on:
        busy, free = on.pools["interactive"]
        busy.answer = saying(answer_of(status))
        for extra in (COSTLY, {}) * 6:
            answer = await on.chat(**extra)
            assert (answer.status, answer.header(b"x-steplane-replica")) == (200, free.name.encode())
            assert pool_of(answer) == "interactive"
        assert busy.asked


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("replicas", [1, 2])
async def test_where_all_are_too_busy_the_client_gets_the_last_engines_own_answer(status: int, replicas: int) -> None:
    shorter = {"interactive": {"admission": {"max_wait_s": 5}}}  # than any of them asks for
    async with stage(street(interactive=replicas), options=shorter) as on:
        body = b'{"error":{"message":"The queue is full"}}'
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(status, body, f"retry-after: 1{replica.name[-1]}"))
        answer = await on.chat(**COSTLY)
        assert (answer.status, answer.body) == (status, body)
        last = (answer.header(b"x-steplane-replica") or b"").decode()[-1:]
        assert answer.header(b"retry-after") == f"1{last}".encode()
        assert [len(each.asked) for each in on.pools["interactive"]] == [1] * replicas
        assert on.quarantine.asked == []


@pytest.mark.parametrize("status", [429, 503])
async def test_being_busy_opens_no_breaker(status: int) -> None:
    async with stage(street(interactive=2)) as on:
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(status))
        for extra in (COSTLY, {}) * 20:
            await on.chat(**extra)
        assert states(on) == {ReplicaState.closed}
        assert on.barred == set()
        assert all(replica.available for replica in on.replicas)


# --- the client's fault


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_wrong_request_is_nobodys_fault_but_its_clients(status: int) -> None:
    async with stage(street(interactive=2)) as on:
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(status))
        for extra in (COSTLY, {}) * 15:
            answer = await on.chat(**extra)
            assert (answer.status, answer.body) == (status, b'{"error":{"message":"no"}}')
        assert sum(len(each.asked) for each in on.pools["interactive"]) == 30
        assert states(on) == {ReplicaState.closed}
        assert on.barred == set()


# --- the replica's fault

BROKEN: dict[str, Answer] = {
    "500": saying(answer_of(500)),
    "502": saying(answer_of(502)),
    "no answer": hang_up,
    "no HTTP": saying(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "a stream that breaks": saying(SSE_HEAD + EVENT + b"zz\r\n"),
}
QUICK = {"interactive": {"ejection": {"ejection_s": 0.3, "max_ejection_s": 0.3, "consecutive_faults": 5}}}


async def until_open(on: Stage, replica: Replica, **extra: Any) -> int:
    """Ask until the replica's breaker opens; how many requests it had been sent then."""
    while replica_state(on, replica.name) is not ReplicaState.open:
        assert len(replica.asked) < 30
        await broken_or_not(on, **extra)
    return len(replica.asked)


async def broken_or_not(on: Stage, **extra: Any) -> None:
    client = await on.begin(**extra)
    try:
        await client.response(b"POST")
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass
    finally:
        client.close()


@pytest.mark.parametrize("what", BROKEN)
async def test_a_replica_that_fails_gets_no_more_requests_and_its_signatures_stay_closed(what: str) -> None:
    options = {"interactive": {"ejection": {"ejection_s": 60}}}
    async with stage(street(interactive=2), options=options) as on:
        sick, sound = on.pools["interactive"]
        sick.answer = BROKEN[what]
        kinds = [{}, *KINDS] * 8
        while replica_state(on, sick.name) is not ReplicaState.open:
            assert len(sick.asked) < 30
            await broken_or_not(on, **kinds.pop())
        asked = len(sick.asked)
        assert asked == 5
        for extra in [{}, *KINDS] * 2:
            answer = await on.chat(**extra)
            assert (answer.status, answer.header(b"x-steplane-replica")) == (200, sound.name.encode())
        assert len(sick.asked) == asked
        assert on.barred == set()
        assert on.quarantine.asked == []


@pytest.mark.parametrize("replicas", [1, 2, 3])
async def test_a_pool_in_which_all_fail_is_never_emptied(replicas: int) -> None:
    async with stage(street(interactive=replicas), options={"interactive": {"ejection": {"ejection_s": 60}}}) as on:
        for replica in on.pools["interactive"]:
            replica.answer = saying(answer_of(500))
        for number in range(40):
            # Of many kinds: what fails everywhere in one kind alone is that kind's fault.
            answer = await on.chat(**KINDS[number % len(KINDS)])
            assert (answer.status, pool_of(answer)) == (500, "interactive")
        available = [replica.available for replica in on.replicas if replica.pool == "interactive"]
        assert any(available)
        assert available.count(False) <= replicas / 2


async def test_what_fails_on_every_replica_in_one_kind_alone_is_not_the_replicas_fault() -> None:
    async with stage(street(interactive=3)) as on:

        async def picky(served: Served, message: Message) -> None:
            await served.send(answer_of(500) if b"@@" in message.body else ANSWER)

        for replica in on.pools["interactive"]:
            replica.answer = picky
        for _ in range(20):
            assert (await on.chat(**COSTLY)).status == 500
            assert (await on.chat()).status == 200
        assert states(on) == {ReplicaState.closed}


async def test_trial_requests_bring_a_replica_back_that_is_well_again() -> None:
    async with stage(street(interactive=2), options=QUICK) as on:
        sick, _ = on.pools["interactive"]
        sick.answer = saying(answer_of(500))
        asked = await until_open(on, sick)
        sick.answer = ok
        await until(lambda: replica_state(on, sick.name) is ReplicaState.half_open)
        while replica_state(on, sick.name) is not ReplicaState.closed:
            assert (await on.chat()).status == 200
        assert len(sick.asked) - asked == 2
        held = Held(b"", ANSWER)
        sick.answer = held
        clients = [await on.begin() for _ in range(4)]
        await until(lambda: len(sick.asked) >= asked + 4)
        held.finish.set()
        for client in clients:
            assert (await client.response(b"POST")).status == 200


async def test_a_replica_that_is_still_sick_fails_its_first_trial_and_is_out_again() -> None:
    async with stage(street(interactive=2), options=QUICK) as on:
        sick, _ = on.pools["interactive"]
        sick.answer = saying(answer_of(500))
        asked = await until_open(on, sick)
        await until(lambda: replica_state(on, sick.name) is ReplicaState.half_open)
        await until_open(on, sick)
        assert len(sick.asked) == asked + 1


async def test_no_more_than_a_few_trials_run_at_a_time() -> None:
    async with stage(street(interactive=2), options=QUICK) as on:
        sick, _ = on.pools["interactive"]
        sick.answer = saying(answer_of(500))
        asked = await until_open(on, sick)
        held = Held(b"", ANSWER)
        sick.answer = held
        await until(lambda: replica_state(on, sick.name) is ReplicaState.half_open)
        before = len(on.asked)
        clients = [await on.begin() for _ in range(20)]
        await until(lambda: len(on.asked) == before + 20)
        await stays(lambda: len(sick.asked) == asked + 3)
        held.finish.set()
        for client in clients:
            assert (await client.response(b"POST")).status == 200


async def test_an_error_that_ends_a_stream_counts_with_its_own_status() -> None:
    """Engines begin a stream with 200; `503` in its last event is back-pressure, `500` a fault."""
    for code, state in ((503, ReplicaState.closed), (400, ReplicaState.closed), (500, ReplicaState.open)):
        event = chunk(b'data: {"error":{"message":"no","code":%d}}\n\n' % code)
        options = {"interactive": {"ejection": {"ejection_s": 60}}}
        async with stage(street(interactive=2), options=options) as on:
            replica, _ = on.pools["interactive"]
            replica.answer = saying(SSE_HEAD + EVENT + event + chunk(b"data: [DONE]\n\n") + LAST)
            for number in range(24):
                await on.chat(stream=True, **KINDS[number % len(KINDS)])
            assert replica_state(on, replica.name) is state
            assert on.barred == set()
