"""Work in turns on the loop that carries requests, which goes on between two of them."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


async def in_turns(turns: Generator[None, None, Result]) -> Result:
    """Takes one turn after the other, and lets others have the loop in between."""
    while True:
        try:
            next(turns)
        except StopIteration as done:
            result: Result = done.value
            return result
        await asyncio.sleep(0)
