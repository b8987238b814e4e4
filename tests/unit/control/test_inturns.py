import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import orjson
import pytest

from gateway.control.api.reply import json_reply, large_json_reply
from gateway.control.inturns import Pace, giving_way, in_turns

STEPS = 20
STEP_S = 0.001


def work() -> None:
    """One step, longer than a turn may be."""
    began = time.perf_counter()
    while time.perf_counter() - began < STEP_S:
        pass


def generator() -> Generator[None, None, str]:
    for _ in range(STEPS):
        work()
        yield
    return "done"


async def by_in_turns() -> None:
    assert await in_turns(generator()) == "done"


async def by_giving_way() -> None:
    async for _ in giving_way(range(STEPS)):
        work()


async def by_the_pace_of_several_loops() -> None:
    pace = Pace()
    for _ in range(STEPS):
        async for _ in giving_way(range(1), pace):
            work()


async def turns_of_others(way: Callable[[], Awaitable[None]]) -> int:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    await way()
    running.cancel()
    return turns


@pytest.mark.parametrize("way", [by_in_turns, by_giving_way, by_the_pace_of_several_loops])
async def test_others_have_the_loop_after_each_step_that_is_long(way: Callable[[], Awaitable[None]]) -> None:
    assert await turns_of_others(way) >= STEPS


async def test_short_steps_share_a_turn() -> None:
    async def shortly() -> None:
        async for _ in giving_way(range(1000)):
            pass

    assert await turns_of_others(shortly) < 1000


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"now": 1.5, "none": None, "text": "\u20ac", "empty": {}, "nothing": []},
        {"replicas": [{"name": "a", "at": [1, 2]}, {"name": "b"}], "pools": {"p": {"q": {"r": 1}}, "s": None}},
    ],
)
async def test_a_large_reply_is_the_same_as_a_small_one(value: dict[str, Any]) -> None:
    reply = await large_json_reply(value)
    assert reply.body == json_reply(value).body
    assert isinstance(reply.body, bytes)
    assert orjson.loads(reply.body) == value
