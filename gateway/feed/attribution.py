"""Whose a record is: from the lines of one replica's step feed to observations of requests.

Owns the two doubts that must be settled before anybody is blamed. Sequences of one request in one step are added up
first, since a request is judged by what it takes of a step. And time in which the step thread waited for a CPU is no
work: of a request's time counts the part that the thread worked, and where that was little nobody is blamed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.feed.records import Compile, Offence, Rollup, Share, Step
from gateway.feed.running import Running, RunningRequests
from gateway.feed.target import Target
from gateway.hookcost.observation import (
    CompileObservation,
    Limit,
    OffenceObservation,
    RollupObservation,
    StepObservation,
)

_WORKED = 0.25
"""Of a step's hook time at least this part must have been CPU time; replica/feed/rollup.py takes the same part."""


class Observer(Protocol):
    """Who is told. What it raises is logged and goes no further."""

    def step(self, observation: StepObservation) -> None:
        """A request took at least a quarter of the smallest budget in one step."""

    def rollup(self, observation: RollupObservation) -> None:
        """What a request's steps of about a second came to."""

    def compiled(self, observation: CompileObservation) -> None:
        """A request's grammar left the compile queue."""

    def offence(self, observation: OffenceObservation) -> None:
        """The engine's own watchdog named a request."""


@dataclass(slots=True)
class _Sum:
    """One attempt's sequences, added up. They advance in the same steps; their worst steps are taken for the same."""

    attempt: Running
    share: Share

    def add(self, other: Share) -> None:
        mine = self.share
        kinds = dict(mine.kinds)
        for kind, us in other.kinds.items():
            kinds[kind] = kinds.get(kind, 0.0) + us
        steps = max(mine.steps, other.steps)
        self.share = Share(steps, mine.sum_us + other.sum_us, mine.max_us + other.max_us, kinds)


@dataclass(slots=True)
class Attribution:
    """For one replica. `unattributed` counts records of nobody here, `starved` steps that are nobody's."""

    target: Target
    running: RunningRequests
    observer: Observer
    clock: Callable[[], float]
    unattributed: int = 0
    starved: int = 0

    def step(self, record: Step) -> None:
        """Tell of every request that the line names."""
        hook_us = record.hook_us
        worked = min(1.0, record.cpu_us / hook_us) if hook_us > 0 else 1.0
        if worked < _WORKED:
            return
        now = self.clock()
        for found in self._sums({rid: _of_step(kinds) for rid, kinds in record.requests.items()}):
            kinds = found.share.kinds
            if worked < 1.0:
                kinds = {kind: us * worked for kind, us in kinds.items()}
            self.observer.step(StepObservation(found.attempt.origin, now, found.share.sum_us * worked, kinds))

    def rollup(self, record: Rollup) -> None:
        """Tell of every request in it. Starved steps are not in it: the feed leaves them out."""
        self.starved += record.starved
        now = self.clock()
        for found in self._sums(record.requests):
            share = found.share
            self.observer.rollup(
                RollupObservation(
                    found.attempt.origin,
                    now,
                    share.steps,
                    share.sum_us,
                    min(share.max_us, share.sum_us),
                    share.kinds,
                )
            )

    def compile(self, record: Compile) -> None:
        """Tell of the request whose grammar it was."""
        attempt = self._find(record.rid)
        if attempt is not None:
            limit_ms = self.target.compile_limit_ms
            self.observer.compiled(CompileObservation(attempt.origin, self.clock(), record.ms, record.error, limit_ms))

    def offence(self, record: Offence) -> None:
        """Tell of the request that was named."""
        attempt = self._find(record.rid)
        if attempt is not None:
            self.observer.offence(
                OffenceObservation(
                    attempt.origin,
                    self.clock(),
                    Limit(record.limit),
                    record.kind,
                    record.us,
                    record.limit_us,
                    record.abort,
                    record.reason,
                )
            )

    def _find(self, rid: str) -> Running | None:
        attempt = self.running.find(rid, self.target.name)
        if attempt is None:
            self.unattributed += 1
        return attempt

    def _sums(self, requests: Mapping[str, Share]) -> list[_Sum]:
        """Sequences put together by request; those of nobody are counted and left out."""
        sums: dict[int, _Sum] = {}
        for rid, share in requests.items():
            attempt = self._find(rid)
            if attempt is None:
                continue
            found = sums.get(id(attempt))
            if found is None:
                sums[id(attempt)] = _Sum(attempt, share)
            else:
                found.add(share)
        return list(sums.values())


def _of_step(kinds: Mapping[str, float]) -> Share:
    us = sum(kinds.values())
    return Share(1, us, us, kinds)
