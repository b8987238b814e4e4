"""Two gateways and a real Redis: what one has learnt the other obeys, and losing Redis forgets and delays nothing."""

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.breaker.record import Kind, State
from tests.integration.gateway.harness import ANSWER, Held, ok
from tests.integration.loop.harness import (
    COSTLY,
    HARD_US,
    KINDS,
    Stage,
    at_once,
    gateway,
    pool_of,
    serving,
    stays,
    street,
)
from tests.integration.loop.test_probes import SOON
from tests.integration.state.harness import RedisServer
from tests.integration.wire.harness import PATIENCE_S, Message, Served, until

# The package redis leaves a connection to the garbage collector when it is cancelled while it connects.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

KEEPING = ("--save", "3600 1000000")
"""Saves when it is stopped in good order, and at no other time."""


@pytest.fixture(autouse=True)
def no_garbage_is_left_to_other_tests() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", *KEEPING).start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def two(redis: RedisServer, **config: Any) -> AsyncIterator[tuple[Stage, Stage]]:
    """Two gateways before the same replicas."""
    pools = street()
    state = {"redis": {"url": redis.url}}
    async with (
        serving(pools),
        gateway(pools, state=state, **config) as one,
        gateway(pools, state=state, **config) as other,
    ):
        yield one, other


def connected(*gateways: Stage) -> bool:
    return all(each.oversight.store.status().connected for each in gateways)


def agree(one: Stage, other: Stage, **extra: Any) -> bool:
    mine, its = one.record(**extra), other.record(**extra)
    return mine is not None and its is not None and (mine.state, mine.trips) == (its.state, its.trips)


async def test_a_trip_at_one_is_obeyed_by_the_other(redis: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    async with two(redis) as (one, other):
        took_ms = []
        for extra in KINDS:
            await one.chat(**extra)
            rid = one.interactive.rids[-1]
            began = time.perf_counter()
            one.interactive.says.steps(rid, HARD_US * 2)
            await until(lambda extra=extra: other.state(**extra) is State.open)
            took_ms.append(1e3 * (time.perf_counter() - began))
            answers = [await each.chat(**extra) for each in (one, other)]
            assert [pool_of(answer) for answer in answers] == ["quarantine", "quarantine"]
            assert other.record(**extra) == one.record(**extra)
        assert pool_of(await other.chat()) == "interactive"
        with capsys.disabled():
            most, median = max(took_ms), sorted(took_ms)[len(took_ms) // 2]
            print(f"\na trip is obeyed at the other gateway {median:.1f} ms after the step, {most:.1f} at most")  # noqa: T201
        # A busy machine may hold up any of them; asked for once a second, hardly one would come so soon.
        assert min(took_ms) < 250


async def test_what_runs_at_the_other_gateway_is_ended_too(redis: RedisServer) -> None:
    async with two(redis) as (one, other):
        held = Held(b"", ANSWER)
        one.interactive.answer = held
        mine = await one.begin(**COSTLY)
        its = await other.begin(**COSTLY)
        await until(lambda: len(one.interactive.asked) == 2)
        one.interactive.says.steps(one.interactive.rids[0], HARD_US * 2)
        for client in (mine, its):
            answer = await client.response(b"POST")
            assert (answer.status, pool_of(answer)) == (200, "quarantine")
        await until(lambda: len(set(one.interactive.aborted)) == 2)


async def test_what_is_released_at_one_goes_its_old_way_at_the_other(redis: RedisServer) -> None:
    async with two(redis) as (one, other):
        await one.trip(**COSTLY)
        await until(lambda: other.state(**COSTLY) is State.open)
        other.trust.release(Kind.signature, other.signature(**COSTLY), "kim", "mended")
        await until(lambda: one.state(**COSTLY) is State.closed)
        assert pool_of(await one.chat(**COSTLY)) == "interactive"


async def test_a_tenant_is_quarantined_at_both(redis: RedisServer) -> None:
    config = {"tenants": {"header": "x-tenant"}, "breaker": {"tenant": {"signatures": 4, "window_s": 60}}}
    line = "x-tenant: acme"
    async with two(redis, **config) as (one, other):
        for number, extra in enumerate(KINDS[:4]):
            # Two at each: neither has seen enough by itself.
            here, there = (one, other) if number % 2 else (other, one)
            await here.trip(line, **extra)
            await until(lambda there=there, extra=extra: there.state(**extra) is State.open)
        for each in (one, other):
            await until(lambda each=each: "acme" in each.barred)
            assert pool_of(await each.chat(line, **KINDS[4])) == "quarantine"
            assert pool_of(await each.chat("x-tenant: other", **KINDS[4])) == "interactive"
            assert pool_of(await each.chat(line)) == "interactive"


async def test_a_gateway_that_starts_later_knows_what_is_quarantined_from_its_first_request_on(
    redis: RedisServer,
) -> None:
    pools = street()
    state = {"redis": {"url": redis.url}}
    async with serving(pools):
        async with gateway(pools, state=state) as one:
            await one.trip(**COSTLY)
            one.trust.pin(Kind.signature, one.signature(**KINDS[1]), "kim", "")
            await until(lambda: not one.oversight.store.status().pending)
            async with gateway(pools, state=state) as late:
                for extra in (COSTLY, KINDS[1]):
                    assert pool_of(await late.chat(**extra)) == "quarantine"
        # Nor is it forgotten when no gateway is left.
        async with gateway(pools, state=state) as later:
            assert pool_of(await later.chat(**COSTLY)) == "quarantine"
            assert later.state(**KINDS[1]) is State.pinned


async def test_one_probe_runs_at_a_time_at_both_together(redis: RedisServer, hurry: dict[str, float]) -> None:
    hurry["longest_s"] = 0.4  # a Redis that has just started grants no lease for as long as one may last
    breaker = SOON | {"probes": {"close_after": 4, "first_s": 0.05, "factor": 1, "max_s": 0.05}}
    async with two(redis, breaker=breaker) as (one, other):
        await one.trip(**COSTLY)

        async def soon(served: Served, message: Message) -> None:
            await asyncio.sleep(0.02)
            await served.send(ANSWER)

        one.quarantine.answer = soon
        most = 0
        good: list[int] = []

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, one.trust.status()["probes"] + other.trust.status()["probes"])
                record = one.record(**COSTLY)
                if record is not None and record.state is State.half_open and record.good_probes not in good:
                    good.append(record.good_probes)
                await asyncio.sleep(0.001)

        async def ask(each: Stage) -> None:
            while each.state(**COSTLY) is not State.closed:
                await each.chat(**COSTLY)

        watching = asyncio.create_task(watch())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(ask(one), ask(one), ask(other), ask(other))
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert most == 1
        assert good == [0, 1, 2, 3]
        await until(lambda: agree(one, other, **COSTLY))


async def answers_quickly(*gateways: Stage) -> None:
    """Requests that are quarantined, and plain ones, wait for no Redis: it answers in a second or not at all."""
    for each in gateways:
        for extra in (COSTLY, {}, KINDS[4]):
            answer = await at_once(lambda each=each, extra=extra: each.chat(**extra))
            assert pool_of(answer) == ("quarantine" if extra is COSTLY else "interactive")


@pytest.mark.parametrize("how", ["killed", "stopped", "paused"])
async def test_while_redis_is_away_all_goes_on_and_trips_are_told_when_it_is_back(redis: RedisServer, how: str) -> None:
    async with two(redis) as (one, other):
        await one.trip(**COSTLY)
        await until(lambda: agree(one, other, **COSTLY))
        {"killed": redis.kill, "stopped": redis.stop, "paused": redis.pause}[how]()
        await answers_quickly(one, other)
        await one.trip(**KINDS[1])
        await other.trip(**KINDS[2])
        await answers_quickly(one, other)
        # Each obeys what it knows.
        assert pool_of(await one.chat(**KINDS[1])) == "quarantine"
        assert pool_of(await other.chat(**KINDS[2])) == "quarantine"
        assert pool_of(await other.chat(**KINDS[1])) == "interactive"
        if how == "paused":
            redis.resume()
        else:
            redis.start()
        for extra in KINDS[:3]:
            await until(lambda extra=extra: agree(one, other, **extra))
            for each in (one, other):
                assert each.state(**extra) is State.open
                assert pool_of(await each.chat(**extra)) == "quarantine"
        # An empty Redis was told all of it again.
        async with gateway(one.pools, state={"redis": {"url": redis.url}}) as late:
            await until(lambda: late.barred == one.barred == other.barred)
            assert len(late.barred) == 3


async def test_without_redis_nothing_is_probed_so_that_nothing_is_probed_twice(
    redis: RedisServer, hurry: dict[str, float]
) -> None:
    hurry["longest_s"] = 0.3
    async with two(redis, breaker=SOON) as (one, other):
        held = Held(b"", ANSWER)
        one.quarantine.answer = held
        await one.trip(**COSTLY)
        deadline = time.monotonic() + 15
        while not one.trust.status()["probes"]:
            assert time.monotonic() < deadline
            await one.begin(**COSTLY)
            await asyncio.sleep(0.02)
        redis.kill()
        held.finish.set()
        one.quarantine.answer = ok
        await until(lambda: not one.trust.status()["probes"])
        await until(lambda: not connected(one) and not connected(other))
        until_ = time.monotonic() + 0.5
        while time.monotonic() < until_:
            for each in (one, other):
                assert pool_of(await each.chat(**COSTLY)) == "quarantine"
                assert each.trust.status()["probes"] == 0
        for each in (one, other):
            assert each.state(**COSTLY) is not State.closed


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_a_probe_that_runs_when_redis_goes_is_the_only_one_when_it_is_back(
    redis: RedisServer, how: str, hurry: dict[str, float]
) -> None:
    hurry["longest_s"] = 2.0
    async with two(redis, breaker=SOON) as (one, other):
        await one.trip(**COSTLY)
        held = Held(b"", ANSWER)
        one.quarantine.answer = held
        running = []
        deadline = time.monotonic() + 15
        while not one.trust.status()["probes"]:
            assert time.monotonic() < deadline
            running.append(await one.begin(**COSTLY))
            await asyncio.sleep(0.02)
        if how == "killed":
            redis.kill()
            redis.start()
        else:
            redis.pause()
            await asyncio.sleep(0.2)
            redis.resume()
        until_ = time.monotonic() + 1.0
        while time.monotonic() < until_ and one.trust.status()["probes"]:
            running.append(await other.begin(**COSTLY))
            # On a slow machine that of the first may have had its time by now.
            assert not (one.trust.status()["probes"] and other.trust.status()["probes"])
            await asyncio.sleep(0.02)
        held.finish.set()
        for client in running:
            assert pool_of(await client.response(b"POST")) == "quarantine"


async def test_a_gateway_that_finds_no_redis_serves_and_joins_when_there_is_one(redis: RedisServer) -> None:
    redis.kill()
    async with two(redis) as (one, other):
        await one.trip(**COSTLY)
        assert pool_of(await one.chat(**COSTLY)) == "quarantine"
        assert pool_of(await other.chat(**COSTLY)) == "interactive"
        redis.start()
        await until(lambda: agree(one, other, **COSTLY))
        assert pool_of(await other.chat(**COSTLY)) == "quarantine"


async def test_what_one_has_observed_of_costs_the_other_counts_with(redis: RedisServer) -> None:
    async with two(redis) as (one, other):
        await one.chat(**COSTLY)
        rid = one.interactive.rids[-1]
        for _ in range(40):
            one.interactive.says.rollup(rid, 50, 400.0)
        await one.heard(one.interactive)
        priced = one.classified(**COSTLY)
        await until(lambda: steps_known(other, priced.signature) == 2000)
        assert 350 < other.oversight.book.blended(priced).step_us < 450
        await stays(lambda: steps_known(one, priced.signature) == 2000)


def steps_known(on: Stage, signature: str) -> float:
    """Of how many steps of a signature the gateway knows what they cost."""
    entry = on.oversight.book.entry(signature)
    return 0 if entry is None else entry.steps
