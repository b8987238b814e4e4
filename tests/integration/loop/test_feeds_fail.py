"""A feed that is down, mad or mute: requests flow, what is known says how it is known, and nobody is blamed for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.breaker.record import State
from gateway.feed.sources import Source
from tests.integration.gateway.harness import SSE_HEAD
from tests.integration.loop.feed import Feed
from tests.integration.loop.harness import (
    BUDGET_US,
    COSTLY,
    HARD_US,
    KINDS,
    Replica,
    Stage,
    at_once,
    pool_of,
    stage,
    street,
)
from tests.integration.wire.harness import Message, Served, chunk, until


def garbage(line: bytes) -> Callable[[Feed], None]:
    def make(feed: Feed) -> None:
        feed.garbage = line

    return make


def silent(feed: Feed) -> None:
    feed.silent = True


FAILING: dict[str, Callable[[Feed], None]] = {
    "no JSON": garbage(b"<html>hello</html>\n"),
    "another protocol": garbage(b'{"event":"step","seq":"x"}\n'),
    "endless lines": garbage(b"x" * 300_000),
    "nothing at all": silent,
}


async def flows(on: Stage) -> None:
    for extra in ({}, *KINDS):
        answer = await at_once(lambda extra=extra: on.chat(**extra))
        assert (answer.status, pool_of(answer)) == (200, "interactive")


@pytest.mark.parametrize("what", FAILING)
async def test_with_a_feed_that_says_nothing_of_use_traffic_flows_and_it_is_taken_up_when_it_is_well(what: str) -> None:
    pools = street()
    feed = pools["interactive"][0].says
    FAILING[what](feed)
    async with stage(pools) as on:
        await until(lambda: feed.connections > 0)
        await flows(on)
        assert on.sources["interactive-0"].source is not Source.steps
        assert on.sources["quarantine-0"].source is Source.steps
        assert on.barred == set()
        feed.garbage, feed.silent = b"", False
        feed.hang_up()
        await until(lambda: on.sources["interactive-0"].source is Source.steps)
        await on.trip(**COSTLY)


async def test_without_a_feed_traffic_flows_and_the_source_says_so() -> None:
    async with stage() as on:
        await on.interactive.says.stop()
        await until(lambda: on.sources["interactive-0"].source is not Source.steps)
        assert on.sources["interactive-0"].last_error
        await flows(on)
        await on.interactive.says.start()
        await until(lambda: on.sources["interactive-0"].source is Source.steps)
        assert on.sources["interactive-0"].last_error is None
        await on.trip(**COSTLY)


async def test_what_happened_while_the_connection_was_lost_trips_when_it_is_told() -> None:
    async with stage() as on:
        await on.chat(**COSTLY)
        rid = on.interactive.rids[-1]
        on.interactive.says.steps(rid, BUDGET_US * 1.1, BUDGET_US * 1.1)
        await on.heard(on.interactive)
        on.interactive.says.hang_up()
        await until(lambda: on.interactive.says.connections == 2 and bool(on.interactive.says._readers))
        assert on.state(**COSTLY) is State.closed
        on.interactive.says.steps(rid, BUDGET_US * 1.1)
        await until(lambda: on.state(**COSTLY) is State.open)


async def test_lines_that_are_no_records_between_good_ones_are_counted_and_passed_over() -> None:
    async with stage() as on:
        await on.chat(**COSTLY)
        rid = on.interactive.rids[-1]
        for line in (
            b"\n",
            b"{}\n",
            b"[1]\n",
            b'{"event":"step","seq":1}\n',
            b'{"event":"news","of":"tomorrow"}\n',
            json.dumps({"event": "offence", "seq": 1, "rid": rid, "limit": "?", "kind": None}).encode() + b"\n",
            b'{"event":"rollup","after":"x"}\n',
        ):
            on.interactive.says._write(line)
        await on.heard(on.interactive)
        assert on.sources["interactive-0"].garbage >= 5
        assert on.sources["interactive-0"].source is Source.steps
        assert on.barred == set()
        on.interactive.says.steps(rid, HARD_US * 2)
        await until(lambda: on.state(**COSTLY) is State.open)


async def test_a_flood_of_steps_keeps_no_request_waiting() -> None:
    async with stage() as on:
        await on.chat(**COSTLY)
        rid = on.interactive.rids[-1]
        for _ in range(20_000):
            on.interactive.says.steps(rid, BUDGET_US * 0.5)
        answered = 0
        while on.sources["interactive-0"].records < 20_000:
            assert (await on.chat()).status == 200
            answered += 1
        # Taken at one go, the flood would let through the request that waits behind it, and no other.
        assert answered > 5


# --- no recorder: gaps on the gateway's own streams, and a control


class Pace:
    """An engine that streams a token each `base_s`, and more for what slows it down."""

    def __init__(self, base_s: float, slowed_by: Callable[["Pace"], float]) -> None:
        self.base_s = base_s
        self.slowed_by = slowed_by
        self.running: dict[str, int] = {}

    async def __call__(self, served: Served, message: Message) -> None:
        kind = next((kind for kind in ("@@", "frequency_penalty") if kind.encode() in message.body), "")
        self.running[kind] = self.running.get(kind, 0) + 1
        try:
            await served.send(SSE_HEAD)
            while True:
                await asyncio.sleep(self.base_s + self.slowed_by(self))
                await served.send(chunk(b'data: {"n":1}\n\n'))
        finally:
            self.running[kind] -= 1


@asynccontextmanager
async def blind(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A gateway that has nothing but its own streams to judge by, two plain ones of which run."""
    monkeypatch.setattr("gateway.feed.senses._TICK_S", 0.1)
    pools = {"interactive": [Replica("interactive-0", pace, feed=False)], "quarantine": [Replica("quarantine-0")]}
    options = {"interactive": {"feed": "off", "hard_limit_us": 5 * BUDGET_US}}
    async with stage(pools, options=options) as on:
        streams = [await on.begin(stream=True) for _ in range(2)]
        readers = [asyncio.create_task(client.reader.read(1 << 30)) for client in streams]
        try:
            yield on
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


async def take_turns(on: Stage, *together: dict[str, Any], turn: Callable[[], Awaitable[None]], rounds: int) -> None:
    """Run these for a turn, then none of them, and again."""
    for _ in range(rounds):
        await turn()
        if on.barred:
            return
        clients = [await on.begin(stream=True, **extra) for extra in together]
        await turn()
        for client in clients:
            client.close()


async def test_the_control_names_who_slows_all_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(0.004, lambda pace: 0.06 * pace.running.get("@@", 0))
    async with blind(pace, monkeypatch) as on:
        assert on.gateway._fleet is not None
        itl = on.gateway._fleet._senses.itl("interactive-0")
        assert itl is not None

        last: list[object] = [None]

        async def until_it_counts() -> None:
            """However slow the machine is: until others run than in the last turn, and enough was seen of them."""

            def counts() -> bool:
                return itl.period is not None and itl.period is not last[-1] and len(itl.period.gaps) >= 12

            await until(lambda: counts() or bool(on.barred))
            last.append(itl.period)

        await take_turns(on, COSTLY, turn=until_it_counts, rounds=40)
        assert on.barred == {on.signature(**COSTLY)}
        record = on.record(**COSTLY)
        assert record is not None
        assert record.trip is not None
        assert record.trip.hook == "itl"
        assert 5_000 < record.trip.observed < 1_000_000
        assert on.sources["interactive-0"].source in (Source.itl, Source.metrics)
        assert pool_of(await on.chat(**COSTLY)) == "quarantine"


UNCLEAR: dict[str, tuple[Callable[[Pace], float], list[dict[str, Any]]]] = {
    "a replica that is slow with it and without": (lambda pace: 0.015, [COSTLY]),
    "one that nobody is slowed down by": (lambda pace: 0.0, [COSTLY]),
    "two that run at the same times": (
        lambda pace: 0.015 * pace.running.get("@@", 0),
        [COSTLY, {"frequency_penalty": 1}],
    ),
}


@pytest.mark.parametrize("what", UNCLEAR)
async def test_the_control_names_nobody_for(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed_by, together = UNCLEAR[what]
    async with blind(Pace(0.004, slowed_by), monkeypatch) as on:
        await take_turns(on, *together, turn=lambda: asyncio.sleep(0.25), rounds=5)
        assert on.barred == set()
