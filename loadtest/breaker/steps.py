"""What the steps of a replica really cost, read from its step feed by the run itself, beside the gateway."""

import asyncio
import contextlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

from loadtest.breaker.site import feed_port

_STARVED = 0.5
"""A step whose thread had the CPU for less than this share of its hooks was starved: its figures are nobody's."""


@dataclass(slots=True)
class RequestSteps:
    """One request's steps: own hook time of each in µs, and Unix time at which each ended."""

    own_us: list[float] = field(default_factory=list)
    ended_at: list[float] = field(default_factory=list)

    def first_over(self, budget_us: float) -> float | None:
        """When its first step over the budget ended; None: none was."""
        for own_us, at in zip(self.own_us, self.ended_at, strict=True):
            if own_us > budget_us:
                return at
        return None

    def over(self, budget_us: float) -> int:
        """Steps over the budget."""
        return sum(own_us > budget_us for own_us in self.own_us)


class StepReader:
    """Follows one replica's feed from now on. `requests` holds the steps by request id, `step_us` all durations."""

    def __init__(self, replica_url: str) -> None:
        port = urlsplit(replica_url).port
        assert port is not None
        self._url = f"http://127.0.0.1:{feed_port(port)}/steps?from=newest"
        self.requests: defaultdict[str, RequestSteps] = defaultdict(RequestSteps)
        self.step_us: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __aenter__(self) -> "StepReader":
        self._task = asyncio.create_task(self._follow())
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            self._task.result()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
            response.raise_for_status()
            async for line in response.content:
                self._ready.set()
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if record.get("event") == "step":
                        self._take(record)

    def _take(self, step: dict[str, object]) -> None:
        at, step_us, hook_us, cpu_us = (float(str(step[key])) for key in ("at", "step_us", "hook_us", "cpu_us"))
        self.step_us.append(step_us)
        own = step["requests"]
        if not isinstance(own, dict) or cpu_us < _STARVED * hook_us:
            return
        for rid, kinds in own.items():
            steps = self.requests[rid]
            steps.own_us.append(min(sum(kinds.values()), cpu_us))
            steps.ended_at.append(at + step_us / 1e6)
