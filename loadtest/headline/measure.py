"""The measurement: fronts before the same replicas, and a scenario at all of them in turns."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from loadtest.breaker.site import SiteError, feed_port, simulator
from loadtest.client.openloop import Target
from loadtest.headline.fronts import front
from loadtest.results.run import Run, new_run
from loadtest.run import Current, Watched, go_on
from loadtest.traffic.scenario import Scenario

_FORWARD = ("--forward-base-us", "20000", "--forward-per-seq-us", "25", "--forward-per-token-us", "4")
"""A decode step of 20 ms: a large model. Much shorter ones would measure how two cores are shared."""


_READY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas that run: their URLs, and the URLs of those step feeds that they have."""

    replicas: tuple[str, ...]
    feeds: tuple[str, ...]
    grammar_backend: str


@contextlib.asynccontextmanager
async def simulators(count: int, folder: Path) -> AsyncIterator[list[str]]:
    """URLs of so many simulated replicas."""
    async with contextlib.AsyncExitStack() as stack:
        urls: list[str] = []
        for at in range(count):
            urls.append(await stack.enter_async_context(simulator(f"replica-{at}", folder, *_FORWARD)))
            # Only when its feed listens can no other process be given that port.
            await _answers(f"{feed_of(urls[-1])}/health")
        yield urls


def feed_of(replica: str) -> str:
    """URL of the step feed of a simulated replica."""
    host, _, port = replica.rpartition(":")
    return f"{host}:{feed_port(int(port))}"


async def _answers(url: str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            if time.monotonic() > deadline:
                raise SiteError(f"nothing answers at {url}")
            await asyncio.sleep(0.05)


async def measure(
    fleet: Fleet, names: Sequence[str], scenario: Scenario, folder: Path, out: Path, show: Callable[[Current], None]
) -> Run:
    """Run the scenario at every front; the results go to `out`, too."""
    run = new_run(scenario)
    async with contextlib.AsyncExitStack() as stack:
        fronts = [
            await stack.enter_async_context(
                front(name, fleet.replicas, len(fleet.feeds), fleet.grammar_backend, folder)
            )
            for name in names
        ]
        watched = {each.name: Watched(fleet.feeds, each.admin) for each in fronts}
        with _ahead():
            await go_on(run, scenario, [Target(each.name, each.url) for each in fronts], watched, out, show)
    return run


@contextlib.contextmanager
def _ahead() -> Iterator[None]:
    """What a busy machine does to the client must not be taken for what a target does: it goes first, if it may."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, policy, parameters)
