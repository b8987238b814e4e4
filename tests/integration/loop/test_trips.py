"""What makes a signature go to quarantine, and what does not."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from gateway.breaker.record import State
from gateway.breaker.trip import Cause
from gateway.feed.sources import Source
from tests.integration.gateway.harness import Answer, hang_up
from tests.integration.loop.feed import Feed
from tests.integration.loop.harness import (
    BUDGET_US,
    COMPILE_MS,
    COSTLY,
    HARD_US,
    Replica,
    Stage,
    pool_of,
    stage,
    stays,
    street,
)
from tests.integration.wire.harness import Message, Served, until

Told = Callable[[Feed, str], None]


def steps(*own_us: float, **more: Any) -> Told:
    return lambda feed, rid: feed.steps(rid, *own_us, **more)


def rising(start_us: float, end_us: float, count: int = 130) -> Told:
    return steps(*(start_us + (end_us - start_us) * place / count for place in range(count)))


OVER = BUDGET_US * 1.1
UNDER = BUDGET_US * 0.9

TRIPS: dict[str, tuple[Told, Cause]] = {
    "three steps over the budget": (steps(OVER, 5.0, OVER, UNDER, OVER), Cause.over_budget),
    "one step over the hard limit": (steps(HARD_US * 1.01), Cause.hard_limit),
    "a compilation over its limit": (lambda feed, rid: feed.compiled(rid, COMPILE_MS + 1), Cause.compile),
    "a step that the engine's watchdog ended": (
        lambda feed, rid: feed.offence(rid, "hard", HARD_US * 2, HARD_US),
        Cause.hard_limit,
    ),
    "a cost that rises with each token": (rising(250, 700), Cause.slope),
}

NEAR_MISSES: dict[str, Told] = {
    "two steps over the budget": steps(OVER, OVER),
    "any number of steps within it": steps(*[UNDER] * 200),
    "one step just within the hard limit": steps(HARD_US * 0.99),
    "a compilation just within its limit": lambda feed, rid: feed.compiled(rid, COMPILE_MS - 1),
    "one request that the engine's watchdog named": lambda feed, rid: feed.offence(rid),
    "a cost that rises once and stays": steps(*[300.0] * 70, *[700.0] * 70),
    "three steps in which the step thread waited for a CPU": steps(*[HARD_US * 2] * 3, worked=0.1),
    "steps of requests that nobody knows": lambda feed, rid: feed.steps("f" * len(rid), *[HARD_US * 2] * 5),
    "an abort that somebody asked for": lambda feed, rid: [feed.offence(rid, "asked") for _ in range(5)] and None,
}


async def told_of(on: Stage, told: Told, **extra: Any) -> None:
    """Run a request and let the feed tell of it, which is taken before anything else happens."""
    await on.chat(**extra)
    told(on.interactive.says, on.interactive.rids[-1])
    await on.heard(on.interactive)


@pytest.mark.parametrize("what", TRIPS)
async def test_it_trips_by(what: str) -> None:
    told, cause = TRIPS[what]
    async with stage() as on:
        assert pool_of(await on.chat(**COSTLY)) == "interactive"
        await told_of(on, told, **COSTLY)
        await until(lambda: on.state(**COSTLY) is State.open)
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trip is not None
        assert record.trip.cause is cause
        assert record.trip.observed > record.trip.limit or cause is Cause.slope
        assert (record.trip.pool, record.trip.replica) == ("interactive", "interactive-0")
        assert record.trip.request_id == on.interactive.rids[-1]
        asked = len(on.interactive.asked)
        answer = await on.chat(**COSTLY)
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        assert answer.header(b"x-steplane-replica") == b"quarantine-0"
        assert len(on.interactive.asked) == asked
        assert len(on.quarantine.asked) == 1


@pytest.mark.parametrize("what", NEAR_MISSES)
async def test_it_does_not_trip_by(what: str) -> None:
    async with stage() as on:
        await told_of(on, NEAR_MISSES[what], **COSTLY)
        await on.heard()
        assert on.barred == set()
        assert pool_of(await on.chat(**COSTLY)) == "interactive"


@pytest.mark.parametrize("what", TRIPS)
async def test_a_plain_request_never_trips(what: str) -> None:
    told, _ = TRIPS[what]
    async with stage() as on:
        for _ in range(3):
            await told_of(on, told)
        await on.heard()
        assert on.barred == set()
        assert pool_of(await on.chat()) == "interactive"


async def test_steps_over_the_budget_add_up_over_requests_of_one_signature_and_not_over_signatures() -> None:
    async with stage() as on:
        for told, kind in ((steps(OVER), COSTLY), (steps(OVER), COSTLY), (steps(OVER, OVER), {"frequency_penalty": 1})):
            await told_of(on, told, **kind)
            await on.heard()
            await asyncio.sleep(0.003)  # what is read within a millisecond counts as one step
        assert on.barred == set()
        await told_of(on, steps(OVER), **COSTLY)
        await until(lambda: on.barred == {on.signature(**COSTLY)})


async def test_two_requests_that_the_watchdog_named_trip() -> None:
    async with stage() as on:
        for _ in range(2):
            assert on.barred == set()
            await told_of(on, lambda feed, rid: feed.offence(rid), **COSTLY)
            await on.heard()
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trip is not None
        assert (record.trip.cause, record.trip.count) == (Cause.aborts, 2)


async def test_sequences_of_one_request_are_judged_by_what_they_take_together() -> None:
    async with stage() as on:
        await on.chat(n=4, **COSTLY)
        rid = on.interactive.rids[-1]
        for _ in range(3):
            on.interactive.says.step({f"{rid}_{number}": {"stop": BUDGET_US * 0.3} for number in range(4)})
        await until(lambda: on.barred == {on.signature(n=4, **COSTLY)})


async def test_each_request_of_a_step_is_judged_by_its_own_part() -> None:
    async with stage() as on:
        await on.chat(**COSTLY)
        await on.chat(frequency_penalty=1)
        dear, cheap = on.interactive.rids
        for _ in range(3):
            on.interactive.says.step({dear: {"stop": OVER}, cheap: {"penalties": UNDER}})
        await until(lambda: bool(on.barred))
        assert on.barred == {on.signature(**COSTLY)}


def dying(replica: Replica) -> Answer:
    """Dies of the request, as a process does whose feed sees it go."""

    async def answer(served: Served, message: Message) -> None:
        replica.says.end()
        await hang_up(served, message)

    return answer


async def test_a_request_that_two_replicas_died_of_is_not_sent_to_a_third() -> None:
    pools = street(interactive=3)
    async with stage(pools) as on:
        for replica in pools["interactive"]:
            replica.answer = dying(replica)
        answer = await on.chat(**COSTLY)
        # Whether the second death or the end of its connection is heard of first is chance.
        assert answer.status == 502 or pool_of(answer) == "quarantine"
        await until(lambda: on.state(**COSTLY) is State.open)
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trip is not None
        assert (record.trip.cause, record.trip.observed) == (Cause.crash, 2)
        assert pool_of(await on.chat(**COSTLY)) == "quarantine"
        assert [len(replica.asked) for replica in pools["interactive"]].count(0) == 1


async def test_one_death_is_a_coincidence_also_on_the_replica_that_took_its_place() -> None:
    async with stage() as on:
        replica = on.interactive
        for _ in range(3):
            replica.answer = dying(replica)
            assert (await on.chat(**COSTLY)).status == 502
            await until(lambda: on.sources[replica.name].source is not Source.steps)
            replica.says.reboot()
            await until(lambda: on.sources[replica.name].source is Source.steps)
        assert on.barred == set()


async def test_a_signature_that_is_answered_well_is_not_what_replicas_die_of() -> None:
    pools = street(interactive=3)
    async with stage(pools) as on:
        assert (await on.chat(**COSTLY)).status == 200
        for replica in pools["interactive"]:
            replica.answer = dying(replica)
        assert (await on.chat(**COSTLY)).status == 502
        await stays(lambda: on.barred == set())


async def test_the_first_signature_is_told_apart_from_others_and_from_plain_requests() -> None:
    async with stage() as on:
        await on.trip(**COSTLY)
        others: list[dict[str, Any]] = [{}, {"frequency_penalty": 1}, {"stop": ["@@", "##"]}, {"n": 4, "stop": ["@@"]}]
        for other in others:
            assert pool_of(await on.chat(**other)) == "interactive"
        assert on.quarantine.asked == []
        for path, extra in itertools.product(["/v1/completions", "/v1/responses"], [COSTLY]):
            # One cost shape, whatever the dialect.
            answer = await on.ask(path, {"model": "m", "prompt": "x", "input": "x", **extra})
            assert pool_of(answer) == "quarantine"
