"""The lines of a step feed as typed records (docs/replica.md; replica/feed writes them).

Pure: bytes in, a record out. Durations are µs unless the name says otherwise. What is no record raises RecordError;
events that another version may send are None. Hot: a line is parsed once and its mappings are kept as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_MOST_QUOTED = 80


class RecordError(ValueError):
    """A line that no step feed sends."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First line: who speaks. `boot` names this run of the engine; records are numbered anew with each."""

    engine: str
    version: str
    boot: str
    next_seq: int


@dataclass(frozen=True, slots=True)
class Step:
    """A step in which some request took much. `requests`: hook time by request id and hook kind.

    at_unix_s: when it began, by the engine's wall clock.
    cpu_us:    CPU time of the step thread outside the model.
    """

    seq: int
    at_unix_s: float
    step_us: float
    hook_us: float
    cpu_us: float
    requests: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Offence:
    """The engine's watchdog named a request."""

    seq: int
    rid: str
    limit: str
    kind: str | None
    us: float
    limit_us: float
    abort: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Compile:
    """A grammar left the engine's compile queue."""

    seq: int
    rid: str
    ms: float
    error: str | None


@dataclass(frozen=True, slots=True)
class Note:
    """Something for people."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one sequence took of the steps of a rollup."""

    steps: int
    sum_us: float
    max_us: float
    kinds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rollup:
    """All steps since the last rollup added up. `after`: number of the last record that it covers."""

    after: int
    at_unix_s: float
    steps: int
    starved: int
    step_us: float
    step_max_us: float
    forward_us: float
    hook_us: float
    sequences: int
    requests: Mapping[str, Share]


@dataclass(frozen=True, slots=True)
class Alive:
    """Nothing else was to be said for a second. `step_runs_s`: age of the step that runs now; 0: none does."""

    next_seq: int
    step_runs_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """This reader was too slow: `count` records were overwritten."""

    count: int


@dataclass(frozen=True, slots=True)
class End:
    """The engine is gone."""

    reason: str


Record = Hello | Step | Offence | Compile | Note | Rollup | Alive | Lost | End


def parse_line(line: bytes) -> Record | None:
    """The record on one line; None for an event of another version. Raises RecordError."""
    try:
        fields: dict[str, Any] = orjson.loads(line)
        match fields["event"]:
            case "step":
                return Step(
                    fields["seq"],
                    fields["at"],
                    fields["step_us"],
                    fields["hook_us"],
                    fields["cpu_us"],
                    fields["requests"],
                )
            case "rollup":
                return _rollup(fields)
            case "alive":
                return Alive(int(fields["next_seq"]), float(fields["step_runs_s"]))
            case "compile":
                error = fields["error"]
                ms = float(fields["ms"])
                return Compile(int(fields["seq"]), str(fields["rid"]), ms, None if error is None else str(error))
            case "offence":
                return _offence(fields)
            case "lost":
                return Lost(int(fields["count"]))
            case "note":
                return Note(int(fields["seq"]), str(fields["text"]))
            case "hello":
                return Hello(
                    str(fields["engine"]), str(fields["version"]), str(fields["boot"]), int(fields["next_seq"])
                )
            case "end":
                return End(str(fields["reason"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = bytes(line[:_MOST_QUOTED]).decode(errors="replace")
        what = f"without {error}" if isinstance(error, KeyError) else str(error)
        raise RecordError(f"no record of a step feed ({what}): {said!r}") from None
    return None


def _rollup(fields: dict[str, Any]) -> Rollup:
    return Rollup(
        after=fields["after"],
        at_unix_s=fields["at"],
        steps=fields["steps"],
        starved=fields["starved"],
        step_us=fields["step_us"],
        step_max_us=fields["step_max_us"],
        forward_us=fields["forward_us"],
        hook_us=fields["hook_us"],
        sequences=fields["sequences"],
        requests={
            rid: Share(share["steps"], share["sum_us"], share["max_us"], share["kinds"])
            for rid, share in fields["requests"].items()
        },
    )


def _offence(fields: dict[str, Any]) -> Offence:
    kind = fields["kind"]
    return Offence(
        seq=int(fields["seq"]),
        rid=str(fields["rid"]),
        limit=str(fields["limit"]),
        kind=None if kind is None else str(kind),
        us=float(fields["us"]),
        limit_us=float(fields["limit_us"]),
        abort=bool(fields["abort"]),
        reason=str(fields["reason"]),
    )
