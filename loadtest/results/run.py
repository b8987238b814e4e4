"""A run: all its slices, and the JSON file that they are kept in, from which an interrupted one goes on."""

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from loadtest.results.figures import Figures
from loadtest.results.slices import Slice, Steps
from loadtest.traffic.scenario import Scenario

_FORMAT = 2


class ResultsError(Exception):
    """A results file can't be used; the text says which, why, and what to do."""


@dataclass(slots=True)
class Run:
    """What a results file holds. `digest` tells whether two runs had the same scenario."""

    scenario: str
    digest: str
    judged: list[str]
    hostile: list[str]
    machine: dict[str, Any]
    slices: list[Slice] = field(default_factory=list)

    @property
    def targets(self) -> list[str]:
        """In the order in which they were first visited."""
        return list(dict.fromkeys(each.target for each in self.slices))

    @property
    def phases(self) -> list[str]:
        """Those that were run."""
        return list(dict.fromkeys(each.phase for each in self.slices))

    @property
    def classes(self) -> list[str]:
        """Innocent ones first."""
        return [*self.judged, *self.hostile]

    def figures(self, target: str, phase: str, name: str, turn: int | None = None) -> Figures:
        """One class at one target in one phase, all rounds together or one of them."""
        total = Figures()
        for each in self._of(target, phase, turn):
            if name in each.classes:
                total.merge(each.classes[name])
        return total

    def steps(self, target: str, phase: str) -> Steps:
        """The replicas' steps in one phase of one target."""
        total = Steps()
        for each in self._of(target, phase, None):
            total.merge(each.steps)
        return total

    def delivered_per_s(self, target: str, phase: str, turn: int | None = None) -> float:
        """Tokens a second, of all classes; 0.0 where there is no such slice."""
        found = [each.delivered_per_s for each in self._of(target, phase, turn)]
        return sum(found) / len(found) if found else 0.0

    def rounds(self, target: str) -> list[int]:
        """The rounds in which every phase was run at the target."""
        done = {each.round for each in self.slices if each.target == target}
        return sorted(
            turn
            for turn in done
            if len({each.phase for each in self.slices if (each.target, each.round) == (target, turn)})
            == len(self.phases)
        )

    def _of(self, target: str, phase: str, turn: int | None) -> list[Slice]:
        return [
            each for each in self.slices if each.target == target and each.phase == phase and turn in (None, each.round)
        ]

    def save(self, path: Path) -> None:
        """Write it, so that the file is always whole."""
        document = {
            "format": _FORMAT,
            "scenario": self.scenario,
            "digest": self.digest,
            "judged": self.judged,
            "hostile": self.hostile,
            "machine": self.machine,
            "slices": [each.document() for each in self.slices],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        beside.write_bytes(orjson.dumps(document))
        os.replace(beside, path)


def new_run(scenario: Scenario) -> Run:
    """One that has not begun."""
    classes = scenario.classes.items()
    return Run(
        scenario=scenario.name,
        digest=scenario.digest(),
        judged=[name for name, each in classes if not each.hostile],
        hostile=[name for name, each in classes if each.hostile],
        machine={"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
    )


def read(path: Path) -> Run:
    """What `save` has written. Raises ResultsError."""
    try:
        document = orjson.loads(path.read_bytes())
        if document["format"] != _FORMAT:
            raise ResultsError(f"{path}: format {document['format']!r}, expected {_FORMAT}; run it again")
        return Run(
            scenario=str(document["scenario"]),
            digest=str(document["digest"]),
            judged=list(document["judged"]),
            hostile=list(document["hostile"]),
            machine=dict(document["machine"]),
            slices=[Slice.read(each) for each in document["slices"]],
        )
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; expected what `steplane loadtest run` has written") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path}: no results of `steplane loadtest run`: {error!r}") from None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
