"""The measurement: fronts before the same replicas, and a scenario at all of them in turns."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.breaker.site import simulator
from loadtest.client.openloop import Target
from loadtest.headline.fronts import front
from loadtest.results.run import Run, new_run
from loadtest.run import Current, Watched, go_on
from loadtest.traffic.scenario import Scenario

_FORWARD = ("--forward-base-us", "12000", "--forward-per-seq-us", "25", "--forward-per-token-us", "4")
"""A decode step of 12 ms: a large model. Much shorter ones would measure how two cores are shared."""
_NICE = -10


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas that run: their URLs, and the URLs of those step feeds that they have."""

    replicas: tuple[str, ...]
    feeds: tuple[str, ...]
    grammar_backend: str


@contextlib.asynccontextmanager
async def simulators(count: int, folder: Path):  # type: ignore[no-untyped-def]
    """A fleet of simulated replicas."""
    async with contextlib.AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(simulator(f"replica-{at}", folder, *_FORWARD)) for at in range(count)]
        yield urls


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
def _ahead():  # type: ignore[no-untyped-def]
    """What a busy machine does to the client must not be taken for what a target does: it goes first, if it may."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    try:
        yield
    finally:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
