"""Work in turns on the loop that carries requests, which goes on between two of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_S = 0.001
"""Longest piece of work between two looks at requests."""


async def in_turns(turns: Generator[None, None, Result]) -> Result:
    """Takes one turn after the other, and lets others have the loop in between."""
    while True:
        try:
            next(turns)
        except StopIteration as done:
            result: Result = done.value
            return result
        await asyncio.sleep(0)


async def giving_way(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The items, with a look at what requests want whenever they have waited for long enough."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > _TURN_S:
            await asyncio.sleep(0)
            began = time.perf_counter()
