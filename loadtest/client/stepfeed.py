"""What the steps of the replicas behind a target really cost, read from their step feeds beside the gateway."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from loadtest.traffic.plan import class_of

_STARVED = 0.5
"""A step whose thread had the CPU for less than this share of its hooks was starved: its figures are nobody's."""
_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one replica: Unix time at which it began, and µs. `own_us` by class of traffic, by request ids."""

    feed: int
    at: float
    step_us: float
    forward_us: float
    hook_us: float
    sequences: int
    own_us: dict[str, float]


class StepLog:
    """Follows the feeds from now on, again and again where they end. `steps`: what came since the last `take`."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._steps: list[Step] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "StepLog":
        self._tasks = [asyncio.create_task(self._follow(at, url)) for at, url in enumerate(self._urls)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take(self) -> list[Step]:
        """The steps since the last call."""
        taken, self._steps = self._steps, []
        return taken

    async def _follow(self, feed: int, url: str) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with (
                    aiohttp.ClientSession(timeout=timeout, read_bufsize=1 << 22) as session,
                    session.get(f"{url.rstrip('/')}/steps?from=newest") as response,
                ):
                    async for line in response.content:
                        self._take(feed, line)
            await asyncio.sleep(_AGAIN_S)

    def _take(self, feed: int, line: bytes) -> None:
        if not line.startswith(b'{"event":"step"') and b'"step"' not in line[:40]:
            return
        with contextlib.suppress(ValueError, KeyError, TypeError):
            record = orjson.loads(line)
            own_us: dict[str, float] = {}
            if record["cpu_us"] >= _STARVED * record["hook_us"]:
                for rid, kinds in record["requests"].items():
                    name = class_of(rid)
                    own_us[name] = own_us.get(name, 0.0) + sum(kinds.values())
            self._steps.append(
                Step(
                    feed,
                    record["at"],
                    record["step_us"],
                    record["forward_us"],
                    record["hook_us"],
                    record["sequences"],
                    own_us,
                )
            )
