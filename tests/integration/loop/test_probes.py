"""Half-open: how a signature comes back from quarantine, or does not."""

import asyncio
import time
from typing import Any

import pytest

from gateway.breaker.record import Kind, State
from tests.integration.gateway.harness import ANSWER, Held, error_of, ok
from tests.integration.loop.harness import (
    BUDGET_US,
    COMPILE_MS,
    COSTLY,
    HARD_US,
    KINDS,
    Replica,
    Stage,
    pool_of,
    stage,
    stays,
    street,
)
from tests.integration.loop.test_trips import Told, steps
from tests.integration.wire.harness import until

SOON = {
    "back_off": {"first_s": 0.1, "factor": 2, "max_s": 0.4},
    "probes": {"close_after": 2, "first_s": 0.05, "factor": 1, "max_s": 0.05},
}
SLOWLY = SOON | {"probes": {"close_after": 9, "first_s": 60, "factor": 1, "max_s": 60}}
ONCE = SOON | {"back_off": {"first_s": 0.1, "factor": 600, "max_s": 60}}
"""Probed soon after the first trip; after the second it stays open for as long as a test looks at it."""


async def half_open(on: Stage, **extra: Any) -> None:
    await on.trip(**(extra or COSTLY))
    await until(lambda: on.state(**(extra or COSTLY)) is State.half_open)


def good_probes(on: Stage) -> int:
    record = on.record(**COSTLY)
    return record.good_probes if record is not None else 0


def probes(on: Stage) -> int:
    record = on.record(**COSTLY)
    return record.probes if record is not None else 0


async def probe(on: Stage, held: Held, replica: Replica) -> tuple[asyncio.Task[Any], str]:
    """A request that is a probe, while it runs; and its id."""
    replica.answer = held
    while True:
        held.arrived.clear()
        asking = asyncio.create_task(on.chat(**COSTLY))
        arrived = asyncio.create_task(held.arrived.wait())
        await asyncio.wait((asking, arrived), return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        for _ in range(5):
            await asyncio.sleep(0.002)
        if on.trust.status()["probes"]:
            return asking, replica.rids[-1]
        held.finish.set()
        await asking
        held.finish = asyncio.Event()


GOOD: dict[str, Told] = {
    "steps within the budget": steps(*[BUDGET_US * 0.9] * 5),
    "two steps over it among many": steps(*[BUDGET_US * 1.1] * 2, *[BUDGET_US * 0.9] * 5),
    "a roll-up of cheap steps": lambda feed, rid: feed.rollup(rid, 40, 20.0),
    "nothing, though its replica's feed is read": lambda feed, rid: None,
}
BAD: dict[str, Told] = {
    "three steps over the budget of the pool where it tripped": steps(*[BUDGET_US * 1.1] * 3),
    "one over its hard limit": steps(HARD_US * 1.1),
    "the watchdog": lambda feed, rid: feed.offence(rid, "hard"),
    "a compilation": lambda feed, rid: feed.compiled(rid, COMPILE_MS * 2),
}


@pytest.mark.parametrize("what", GOOD)
async def test_after_enough_good_probes_the_signature_goes_its_old_way(what: str) -> None:
    async with stage(breaker=SOON) as on:
        await half_open(on)
        told = GOOD[what]
        asked = len(on.interactive.asked)
        for number in (1, 2):
            held = Held(b"", ANSWER)
            asking, rid = await probe(on, held, on.quarantine)
            told(on.quarantine.says, rid)
            await on.heard(on.quarantine)
            held.finish.set()
            answer = await asking
            assert (answer.status, pool_of(answer)) == (200, "quarantine")
            await until(lambda number=number: good_probes(on) == number or on.state(**COSTLY) is State.closed)
            assert on.state(**COSTLY) is (State.half_open if number == 1 else State.closed)
        assert len(on.interactive.asked) == asked
        assert pool_of(await on.chat(**COSTLY)) == "interactive"


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_probe_opens_it_again_for_longer(what: str) -> None:
    async with stage(breaker=ONCE) as on:
        # What a pool allows to compile is known once something has compiled there.
        await on.chat(**COSTLY)
        on.interactive.says.compiled(on.interactive.rids[-1], 1.0)
        await half_open(on)
        held = Held(b"", ANSWER)
        asking, rid = await probe(on, held, on.quarantine)
        BAD[what](on.quarantine.says, rid)
        await until(lambda: on.state(**COSTLY) is State.open)
        record = on.record(**COSTLY)
        assert record is not None
        assert record.until is not None
        assert record.trips == 2
        assert record.until - record.since == pytest.approx(60, abs=0.01)
        assert record.trip is not None
        assert record.trip.pool == "interactive"
        held.finish.set()
        # A probe is quarantine's guest: what it did is no reason to abort it there.
        assert (await asking).status == 200
        assert on.quarantine.aborted == []


async def test_the_wait_doubles_with_each_trip_up_to_the_longest() -> None:
    async with stage(breaker=SOON) as on:
        opened = on.opened()
        await on.trip(**COSTLY)
        for trips, wait_s in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.4)):
            await until(lambda trips=trips: len(opened) == trips)
            record = opened[-1]
            assert record.until is not None
            assert record.trips == trips
            assert record.until - record.since == pytest.approx(wait_s, abs=0.01)
            await until(lambda: on.state(**COSTLY) is State.half_open)
            assert time.time() >= record.until - 0.01
            held = Held(b"", ANSWER)
            asking, rid = await probe(on, held, on.quarantine)
            on.quarantine.says.steps(rid, HARD_US * 2)
            await on.heard(on.quarantine)
            held.finish.set()
            await asking


async def test_while_it_is_open_nothing_is_a_probe() -> None:
    async with stage() as on:
        await on.trip(**COSTLY)
        for _ in range(5):
            assert pool_of(await on.chat(**COSTLY)) == "quarantine"
        assert on.trust.status()["probes"] == 0


async def test_one_probe_runs_at_a_time_and_only_it_is_judged() -> None:
    async with stage(breaker=SOON) as on:
        await half_open(on)
        held = Held(b"", ANSWER)
        asking, rid = await probe(on, held, on.quarantine)
        others = [await on.begin(**COSTLY) for _ in range(8)]
        await until(lambda: len(on.quarantine.asked) >= 9)
        assert on.trust.status()["probes"] == 1
        for other in on.quarantine.rids:
            if other != rid:
                on.quarantine.says.steps(other, *[HARD_US * 2] * 3)
        await on.heard(on.quarantine)
        assert on.state(**COSTLY) is State.half_open
        on.quarantine.says.steps(rid, 10.0)
        await on.heard(on.quarantine)
        held.finish.set()
        for client in others:
            assert pool_of(await client.response(b"POST")) == "quarantine"
        assert (await asking).status == 200
        await until(lambda: good_probes(on) == 1)


async def test_the_next_probe_waits_for_its_time() -> None:
    async with stage(breaker=SOON | {"probes": {"close_after": 9, "first_s": 0.3, "factor": 2, "max_s": 9}}) as on:
        await half_open(on)
        ended: list[float] = []
        for number in (1, 2, 3):
            held = Held(b"", ANSWER)
            asking, rid = await probe(on, held, on.quarantine)
            if ended:
                assert time.monotonic() - ended[-1] > 0.3 * 2 ** (number - 2)
            on.quarantine.says.steps(rid, 10.0)
            await on.heard(on.quarantine)
            ended.append(time.monotonic())
            held.finish.set()
            await asking
            await until(lambda number=number: good_probes(on) == number)


async def test_without_a_feed_a_probe_says_nothing() -> None:
    pools = {"interactive": [Replica("interactive-0")], "quarantine": [Replica("quarantine-0", feed=False)]}
    async with stage(pools, breaker=SOON, options={"quarantine": {"feed": "off"}}) as on:
        await half_open(on)
        for number in (1, 2, 3):
            asking, _ = await probe(on, Held(b"", ANSWER), on.quarantine)
            on.quarantine.answer.finish.set()  # type: ignore[attr-defined]
            assert (await asking).status == 200
            await until(lambda number=number: probes(on) == number)
        assert good_probes(on) == 0
        assert on.state(**COSTLY) is State.half_open


async def test_a_probe_whose_feed_was_lost_meanwhile_says_nothing() -> None:
    async with stage(breaker=SOON) as on:
        await half_open(on)
        held = Held(b"", ANSWER)
        asking, _ = await probe(on, held, on.quarantine)
        await on.quarantine.says.stop()
        await until(lambda: on.sources["quarantine-0"].last_error is not None)
        held.finish.set()
        assert (await asking).status == 200
        await until(lambda: probes(on) == 1)
        assert (good_probes(on), on.state(**COSTLY)) == (0, State.half_open)


async def test_a_probe_whose_client_leaves_says_nothing_and_makes_room_for_the_next() -> None:
    async with stage(breaker=SOON) as on:
        await half_open(on)
        held = Held(b"", ANSWER)
        on.quarantine.answer = held
        clients = []
        while not on.trust.status()["probes"]:
            clients.append(await on.begin(**COSTLY))
            await asyncio.sleep(0.02)
        for client in clients:
            client.close()
        await held.left.wait()
        await until(lambda: probes(on) == 1)
        assert good_probes(on) == 0
        held = Held(b"", ANSWER)
        asking, _ = await probe(on, held, on.quarantine)
        held.finish.set()
        await asking


async def test_a_probe_that_never_reaches_an_engine_makes_room_for_the_next_one() -> None:
    options = {"quarantine": {"admission": {"queue": 1, "max_in_flight": 1, "max_wait_s": 0.2}}}
    async with stage(breaker=SOON, options=options) as on:
        await half_open(on)
        blocker, held = KINDS[1], Held(b"", ANSWER)
        on.quarantine.answer = held
        on.trust.pin(Kind.signature, on.signature(**blocker), "kim", "no probe itself")
        running = await on.begin(**blocker)
        await until(lambda: len(on.quarantine.asked) == 1)
        late = await on.chat(**COSTLY)
        assert (late.status, error_of(late)["code"]) == (503, "queue_timeout")
        await until(lambda: on.trust.status()["probes"] == 0)
        held.finish.set()
        assert (await running.response(b"POST")).status == 200


async def test_others_of_a_half_open_signature_go_to_quarantine_and_not_to_its_pool() -> None:
    async with stage(breaker=SLOWLY) as on:
        await half_open(on)
        asked = len(on.interactive.asked)
        for _ in range(6):
            assert pool_of(await on.chat(**COSTLY)) == "quarantine"
        assert len(on.interactive.asked) == asked


async def test_where_open_ones_are_refused_a_probe_is_not() -> None:
    async with stage(breaker=SLOWLY, options={"interactive": {"breaker": {"on_open": "refuse"}}}) as on:
        await half_open(on)
        answer = await on.chat(**COSTLY)
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        for _ in range(3):
            assert (await on.chat(**COSTLY)).status == 429


# --- no quarantine pool


async def test_without_a_quarantine_pool_single_probes_run_in_its_own_and_all_else_is_refused() -> None:
    async with stage(street(quarantine=False), breaker=ONCE) as on:
        await half_open(on)
        held = Held(b"", ANSWER)
        asking, rid = await probe(on, held, on.interactive)
        asked = len(on.interactive.asked)
        for _ in range(5):
            answer = await on.chat(**COSTLY)
            assert (answer.status, error_of(answer)["code"]) == (429, "quarantined")
        assert len(on.interactive.asked) == asked
        on.interactive.says.steps(rid, 10.0)
        await on.heard(on.interactive)
        held.finish.set()
        answer = await asking
        assert (answer.status, pool_of(answer)) == (200, "interactive")
        await until(lambda: good_probes(on) == 1)
        held = Held(b"", ANSWER)
        asking, rid = await probe(on, held, on.interactive)
        on.interactive.says.steps(rid, HARD_US * 2)
        await until(lambda: on.state(**COSTLY) is State.open)
        held.finish.set()
        await asking
        on.interactive.answer = ok
        assert (await on.chat(**COSTLY)).status == 429


async def test_without_a_quarantine_pool_a_request_that_gets_no_lease_does_not_run() -> None:
    """Another gateway probes it, or the shared store is away."""
    async with stage(street(quarantine=False), breaker=SOON) as on:
        leases: list[str] = []

        async def refused(key: str, ttl_s: float) -> bool:
            leases.append(key)
            return False

        on.oversight.store.lease = refused  # type: ignore[method-assign]
        await half_open(on)
        asked = len(on.interactive.asked)
        await until(lambda: on.state(**COSTLY) is State.half_open)
        while len(leases) < 3:
            answer = await on.chat(**COSTLY)
            assert answer.status == 429
            assert (answer.status, error_of(answer)["code"]) == (429, "quarantined")
        await stays(lambda: len(on.interactive.asked) == asked)
