"""Requests that run, and somebody who is told, for the tests of the senses."""

from dataclasses import dataclass, field
from typing import Any

from gateway.feed.scrape import EngineMetrics
from gateway.feed.senses import ReplicaGone
from gateway.feed.sources import ReplicaProgress
from gateway.hookcost.observation import (
    CompileObservation,
    OffenceObservation,
    Origin,
    RollupObservation,
    StepObservation,
)

REPLICA = "r0"


@dataclass(eq=False)
class Attempt:
    """One attempt as the proxy would register it."""

    origin: Origin
    received_s: float = 0.0

    @property
    def costly(self) -> bool:
        return self.origin.costly


def attempt(
    request_id: str = "q",
    signature: str = "s1-a",
    *,
    replica: str = REPLICA,
    costly: bool = True,
    received_s: float = 0.0,
) -> Attempt:
    return Attempt(Origin(request_id, signature, "tenant", "pool", replica, 1000.0, costly=costly), received_s)


@dataclass
class Told:
    """Notes what it is told. With `broken` it fails at everything."""

    broken: bool = False
    steps: list[StepObservation] = field(default_factory=list)
    rollups: list[RollupObservation] = field(default_factory=list)
    compiles: list[CompileObservation] = field(default_factory=list)
    offences: list[OffenceObservation] = field(default_factory=list)
    progresses: list[ReplicaProgress] = field(default_factory=list)
    readings: list[EngineMetrics] = field(default_factory=list)
    ends: list[ReplicaGone] = field(default_factory=list)

    def step(self, observation: StepObservation) -> None:
        self._note(self.steps, observation)

    def rollup(self, observation: RollupObservation) -> None:
        self._note(self.rollups, observation)

    def compiled(self, observation: CompileObservation) -> None:
        self._note(self.compiles, observation)

    def offence(self, observation: OffenceObservation) -> None:
        self._note(self.offences, observation)

    def progress(self, progress: ReplicaProgress) -> None:
        self._note(self.progresses, progress)

    def metrics(self, metrics: EngineMetrics) -> None:
        self._note(self.readings, metrics)

    def gone(self, gone: ReplicaGone) -> None:
        self._note(self.ends, gone)

    def _note(self, notes: list[Any], what: object) -> None:
        notes.append(what)
        if self.broken:
            raise RuntimeError("told too much")
