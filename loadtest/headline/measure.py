"""The measurement: fronts before the same replicas, and a scenario at all of them in turns.

What runs on one machine here would have machines of its own: client and fronts get the CPU before the replicas do, so
that none of them is slow because a replica has much to compute.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.breaker.site import simulator
from loadtest.client.openloop import Target
from loadtest.headline.fronts import SLOTS, front
from loadtest.results.run import Run, new_run
from loadtest.run import Current, Watched, go_on
from loadtest.traffic.scenario import Scenario

_FORWARD = ("--forward-base-us", "20000", "--forward-per-seq-us", "25", "--forward-per-token-us", "4")
"""A decode step of 20 ms: a large model. Much shorter ones would measure how two cores are shared."""
_LIMITS = ("--max-running-requests", str(SLOTS))


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
        flags = (*_FORWARD, *_LIMITS)
        yield [await stack.enter_async_context(simulator(f"replica-{at}", folder, *flags)) for at in range(count)]


async def measure(
    fleet: Fleet, names: Sequence[str], scenario: Scenario, folder: Path, out: Path, show: Callable[[Current], None]
) -> Run:
    """Run the scenario at every front; the results go to `out`, too."""
    run = new_run(scenario)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_ahead())
        fronts = [
            await stack.enter_async_context(
                front(name, fleet.replicas, len(fleet.feeds), fleet.grammar_backend, folder)
            )
            for name in names
        ]
        watched = {each.name: Watched(fleet.feeds, each.admin, fleet.replicas) for each in fronts}
        await go_on(run, scenario, [Target(each.name, each.url) for each in fronts], watched, out, show)
    return run


@contextlib.contextmanager
def _ahead() -> Iterator[None]:
    """This process, and those that it starts meanwhile, go before all others, if it may say so."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, policy, parameters)
