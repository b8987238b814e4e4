"""Waiting for things that tell nobody when they happen."""

import asyncio
import time
from collections.abc import Callable


async def until(true: Callable[[], object], what: str = "what a test waits for", within_s: float = 60.0) -> None:
    """Return when `true` says so; asked again and again. `what`: said where that takes too long."""
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.005)
