"""Work in turns, for callers that share an event loop, and the same work for those that don't. Knows no work."""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def at_once(turns: Generator[None, None, Result]) -> Result:
    """Takes all turns one after the other."""
    while True:
        try:
            next(turns)
        except StopIteration as done:
            result: Result = done.value
            return result
