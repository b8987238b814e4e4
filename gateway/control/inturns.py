"""Work in turns on the loop that carries requests, which goes on between two of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_TURN_S = 0.0005
"""Longest piece of work between two looks at requests; the last step of one may take it a little beyond."""


class Pace:
    """When somebody's work has held the loop for long enough, over all of it, however it is divided."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pause(self) -> None:
        """To be called between two steps: lets others have the loop if it is time for that."""
        if time.perf_counter() - self._began > _TURN_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


async def in_turns(turns: Generator[None, None, Result]) -> Result:
    """Takes one turn after the other, and lets others have the loop in between when it is time for that."""
    pace = Pace()
    while True:
        try:
            next(turns)
        except StopIteration as done:
            result: Result = done.value
            return result
        await pace.pause()


async def giving_way(items: Iterable[Item], pace: Pace | None = None) -> AsyncIterator[Item]:
    """The items, with a look at what requests want whenever they have waited for long enough.

    pace: that of a larger piece of work, which this is a part of.
    """
    pace = pace or Pace()
    for item in items:
        yield item
        await pace.pause()
