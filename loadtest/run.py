"""A scenario at its targets, slice by slice. Owns their order; what is done already is left out.

A round visits one target after the other, with all phases at each before the next: what is compared within a target
is close together in time. Targets turn from round to round, and so do phases.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.client import gatewayapi
from loadtest.client.openloop import OpenLoop, Target
from loadtest.client.replicas import forget
from loadtest.client.stepfeed import StepLog
from loadtest.client.validation import validate
from loadtest.results.run import ResultsError, Run, new_run, read
from loadtest.results.slices import Slice, Steps, classes_of, delivered_of, timeline_of
from loadtest.traffic.plan import plan
from loadtest.traffic.scenario import Scenario

_REST_S = 0.5
"""Between slices: the last records of step feeds come in."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What there is beside a target: step feeds of its replicas, a Steplane gateway's admin port, and the replicas.

    These forget before each slice what they have cached, so that none is judged by what was asked before.
    """

    feeds: tuple[str, ...] = ()
    admin: str | None = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Current:
    """The slice that runs now, for whoever shows progress."""

    number: int
    of: int
    target: str
    phase: str
    round: int
    loop: OpenLoop
    began: float
    lasts_s: float


def order(scenario: Scenario, targets: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """All slices of a run: target, phase, round."""
    for turn in range(scenario.rounds):
        shift = turn % len(targets)
        phases = scenario.phases if turn % 2 == 0 else scenario.phases[::-1]
        for target in [*targets[shift:], *targets[:shift]]:
            for phase in phases:
                yield target, phase, turn


def resumed(scenario: Scenario, path: Path) -> Run:
    """What a results file has of this very scenario, or a run that has not begun. Raises ResultsError."""
    if not path.exists():
        return new_run(scenario)
    run = read(path)
    if run.digest != scenario.digest():
        raise ResultsError(
            f"{path} holds results of another scenario, or of this one before it was changed; move it away"
        )
    return run


async def go_on(
    run: Run,
    scenario: Scenario,
    targets: Sequence[Target],
    watched: Mapping[str, Watched],
    path: Path,
    show: Callable[[Current], None],
) -> None:
    """Run the slices that `run` does not have yet, and save it to `path` after each.

    Raises:
        TargetError: of a URL.
        ValidationMissingError: replies should be validated, and jsonschema is not installed.
        AdminError: a gateway's admin port does not answer.
        ReplicaError: a replica does not forget what it has cached.
    """
    by_name = {target.name: target for target in targets}
    done = {each.key for each in run.slices}
    wanted = [each for each in order(scenario, list(by_name)) if each not in done]
    feeds = sorted({feed for each in watched.values() for feed in each.feeds})
    async with StepLog(feeds) as steps:
        for number, (name, phase, turn) in enumerate(wanted, 1):
            planned = plan(scenario, phase, f"{turn}/{name}")
            beside = watched.get(name, Watched())
            await forget(beside.replicas)
            loop = OpenLoop(scenario, by_name[name])
            steps.take()
            began, now = time.time(), time.monotonic()
            show(Current(number, len(wanted), name, phase, turn, loop, now, scenario.warm_s + scenario.duration_s))
            with _no_collections():
                began_s = await loop.run(planned)
            began += began_s - now
            await asyncio.sleep(_REST_S)
            await asyncio.to_thread(validate, loop.outcomes)
            made = Slice(name, phase, turn, began, classes_of(scenario, phase, loop.outcomes))
            since_s = began_s + scenario.warm_s
            made.delivered_per_s = delivered_of(loop.outcomes, since_s, since_s + scenario.duration_s)
            made.timeline = timeline_of(loop.outcomes, began_s, int(scenario.warm_s + scenario.duration_s) + 1)
            made.steps = _steps(steps, [feeds.index(each) for each in beside.feeds], began + scenario.warm_s)
            if beside.admin is not None:
                made.trips = await gatewayapi.trips(beside.admin, began)
                made.costs = await gatewayapi.costs(beside.admin)
            run.slices.append(made)
            await asyncio.to_thread(run.save, path)


def _steps(log: StepLog, feeds: Sequence[int], since: float) -> Steps:
    steps = Steps()
    for step in log.take():
        if step.feed in feeds and step.at >= since:
            steps.add(step)
    return steps


@contextmanager
def _no_collections() -> Iterator[None]:
    """A full collection holds the client up for tens of milliseconds, and would be taken for the target's doing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
