"""A scenario: classes of traffic, how much of each, for how long, and what counts as good. Read from YAML."""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from loadtest.traffic.arrivals import Arrivals, Trace
from loadtest.traffic.kinds import KINDS
from loadtest.traffic.lengths import Length

SHIPPED = Path(__file__).resolve().parents[1] / "scenarios"
"""Where the scenarios that come with Steplane are."""

_Seconds = Annotated[float, Field(gt=0, le=86_400)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ScenarioError(Exception):
    """A scenario can't be used; the text has a line for each mistake: where, what, and what was expected."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Slo(_Part):
    """What a request must keep to count as good. What is left out is not asked.

    ttft_ms: from the moment it should have been sent to the first token.
    itl_p99_ms: 99th percentile of its own times between tokens.
    e2e_s: to the last byte.
    """

    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    itl_p99_ms: Annotated[float, Field(gt=0)] | None = None
    e2e_s: _Seconds | None = None


class TrafficClass(_Part):
    """One class of traffic.

    kind:               what its bodies ask; see docs/loadtest.md.
    weight:             its share of the scenario's rate, in proportion to those of all classes together.
    hostile:            pathological: the phase `calm` is without it.
    arrivals:           poisson, steady, {burst: N} or {trace: FILE, speed: X}, which brings its own rate.
    prompt_tokens, output_tokens: lengths; output is the most that is asked for.
    stream:             whether tokens are streamed.
    count, folder, zipf: what the kind counts, where its schemas are, and how unevenly they are asked for.
    read_bytes_per_s:   a slow reader. Null: as fast as it comes.
    leave_after_s:      a client that goes away so long after it asked.
    body:               more fields of the body; they win.
    """

    kind: str
    weight: Annotated[float, Field(gt=0)] = 1.0
    hostile: bool = False
    arrivals: Arrivals = "poisson"
    prompt_tokens: Length = 64
    output_tokens: Length = 64
    stream: bool = True
    count: _Count | None = None
    folder: Path | None = None
    zipf: Annotated[float, Field(ge=0, le=5)] = 1.0
    read_bytes_per_s: _Count | None = None
    leave_after_s: _Seconds | None = None
    slo: Slo = Slo()
    body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in KINDS:
            raise ValueError(f"no such kind; expected one of {', '.join(KINDS)}")
        return kind


class Scenario(_Part):
    """What is run at each target.

    name, seed:    the same seed sends the same requests at the same moments.
    path, model:   where and for which model is asked.
    rate_per_s:    requests of all classes together.
    warm_s:        sent before the measured time of a slice, and not counted.
    duration_s:    the measured time of each slice: one phase at one target.
    settle_s:      longest wait for what still runs at its end; what takes longer has failed.
    rounds:        how often each target is visited with each phase.
    phases:        `calm` is without the hostile classes, `hostile` is all of them.
    request_ids:   bodies have a `rid` of ours, by which step feeds name them; for SGLang.
    """

    name: Annotated[str, Field(min_length=1, max_length=60)]
    seed: int = 1
    path: Annotated[str, Field(pattern="^/")] = "/v1/chat/completions"
    model: str = "steplane-simulator"
    rate_per_s: Annotated[float, Field(gt=0, le=100_000)]
    warm_s: Annotated[float, Field(ge=0, le=3600)] = 2.0
    duration_s: _Seconds = 20.0
    settle_s: _Seconds = 30.0
    rounds: _Count = 1
    phases: list[Annotated[str, Field(pattern="^(calm|hostile)$")]] = Field(default=["calm", "hostile"], min_length=1)
    request_ids: bool = True
    classes: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_-]*$")], TrafficClass] = Field(min_length=1)

    @model_validator(mode="after")
    def _someone_is_calm(self) -> "Scenario":
        if "calm" in self.phases and all(each.hostile for each in self.classes.values()):
            raise ValueError("the phase calm is empty: all classes are hostile")
        return self

    def rate_of(self, name: str) -> float:
        """Requests a second of one class, the same in every phase that has it."""
        return self.rate_per_s * self.classes[name].weight / sum(each.weight for each in self.classes.values())

    def classes_of(self, phase: str) -> list[str]:
        """The classes that a phase has."""
        return [name for name, each in self.classes.items() if phase == "hostile" or not each.hostile]

    def digest(self) -> str:
        """What tells two scenarios apart: results of one may only go on with the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def load(where: Path) -> Scenario:
    """The scenario in a file, or one of those that are shipped, by its name. Paths in it are from where it stands.

    Raises ScenarioError.
    """
    path = where if where.exists() or where.suffix else SHIPPED / f"{where.name}.yaml"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(sorted(each.stem for each in SHIPPED.glob("*.yaml")))
        raise ScenarioError(
            f"{where}: {error.strerror}; expected a YAML file, or the name of one of: {names}"
        ) from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: no YAML: {error}") from None
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors()]
        raise ScenarioError("\n".join([f"{path} has {error.error_count()} mistakes:", *lines])) from None
    return scenario.model_copy(
        update={"classes": {name: _anchored(each, path.parent) for name, each in scenario.classes.items()}}
    )


def _anchored(each: TrafficClass, folder: Path) -> TrafficClass:
    arrivals = each.arrivals
    if isinstance(arrivals, Trace):
        arrivals = arrivals.model_copy(update={"trace": folder / arrivals.trace})
    return each.model_copy(update={"arrivals": arrivals, "folder": each.folder and folder / each.folder})
