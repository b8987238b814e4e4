"""Other retries, hedges and deadlines may be in force while requests of the old ones run: each ends as it began."""

import asyncio
from pathlib import Path

from tests.integration.reload.harness import site

from .harness import ANSWER, CHAT, PLAIN, Held, error_of, hang_up, until

POOLS = {"interactive": ["a", "b"]}
HEDGE = {"after_s": 0.02, "max_share": 1}


async def test_other_retries_hold_from_the_next_request_on(tmp_path: Path) -> None:
    async with site(tmp_path, POOLS, answer=hang_up, interactive__retry={"attempts": 1}) as running:
        await running.ask(CHAT, PLAIN[CHAT])
        assert len(running.asked) == 1
        running.write(POOLS, interactive__retry={"attempts": 2})
        await running.take_over()
        await running.ask(CHAT, PLAIN[CHAT])
        assert len(running.asked) == 3


async def test_a_hedge_that_runs_is_looked_after_and_no_further_one_begins(tmp_path: Path) -> None:
    held = Held(end=ANSWER)
    async with site(tmp_path, POOLS, answer=held, interactive__hedge=HEDGE) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 2)
        running.write(POOLS)
        await running.take_over()
        other = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 3)
        held.finish.set()
        assert [(await each).status for each in (asking, other)] == [200, 200]
        await until(lambda: running.in_flight == 0)
        assert len(running.asked) == 3


async def test_hedges_begin_when_they_are_configured(tmp_path: Path) -> None:
    held = Held(end=ANSWER)
    async with site(tmp_path, POOLS, answer=held) as running:
        running.write(POOLS, interactive__hedge=HEDGE)
        await running.take_over()
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 2)
        held.finish.set()
        assert (await asking).status == 200


async def test_a_deadline_that_was_set_passes_though_there_are_none_any_more(tmp_path: Path) -> None:
    held = Held()
    async with site(tmp_path, POOLS, answer=held, interactive__deadline_s=1.0) as running:
        asking = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 1)
        running.write(POOLS)
        await running.take_over()
        answer = await asking
        assert (answer.status, error_of(answer)["code"]) == (504, "deadline_exceeded")


async def test_the_pause_of_a_replica_outlasts_a_reload(tmp_path: Path) -> None:
    async with site(tmp_path, POOLS) as running:
        running.gateway._proxy._back_pressure.heard(  # type: ignore[union-attr]
            running.replicas[0], 503, b"HTTP/1.1 503 Busy\r\nretry-after: 20\r\n\r\n", 30.0
        )
        running.write(POOLS, interactive__retry={"attempts": 3})
        await running.take_over()
        for _ in range(3):
            assert (await running.ask(CHAT, PLAIN[CHAT])).values(b"x-steplane-replica") == [b"b"]
