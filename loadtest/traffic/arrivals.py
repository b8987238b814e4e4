"""When requests are sent: moments that do not depend on when others were answered.

That makes a load open: a server that stalls is asked all the same, and what would have waited for it is counted.
"""

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Bursts(BaseModel):
    """So many requests at once, at moments that themselves come by chance; the mean rate stays what it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    burst: Annotated[int, Field(ge=1, le=10_000)]


class Trace(BaseModel):
    """Moments of a recorded day: a CSV file with a column `at_s`, and `prompt_tokens` and `output_tokens` if known.

    Replayed `speed` times as fast, and from the beginning again when it ends.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    trace: Path
    speed: Annotated[float, Field(gt=0)] = 1.0


Arrivals = Literal["poisson", "steady"] | Bursts | Trace


@dataclass(frozen=True, slots=True)
class Arrival:
    """A moment, in seconds after the beginning, with the lengths of the request where a trace has them."""

    at_s: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class TraceError(Exception):
    """A trace cannot be replayed; the text says where and why."""


def arrivals(kind: Arrivals, rate_per_s: float, until_s: float, chance: random.Random) -> Iterator[Arrival]:
    """The moments below `until_s`. A trace has its own rate. Raises TraceError."""
    match kind:
        case Trace():
            yield from _replayed(kind, until_s)
        case Bursts():
            for at_s in _poisson(rate_per_s / kind.burst, until_s, chance):
                yield from (Arrival(at_s) for _ in range(kind.burst))
        case "steady":
            for at in range(int(until_s * rate_per_s)):
                yield Arrival((at + 0.5) / rate_per_s)
        case _:
            yield from map(Arrival, _poisson(rate_per_s, until_s, chance))


def _poisson(rate_per_s: float, until_s: float, chance: random.Random) -> Iterator[float]:
    at_s = chance.expovariate(rate_per_s)
    while at_s < until_s:
        yield at_s
        at_s += chance.expovariate(rate_per_s)


def _replayed(kind: Trace, until_s: float) -> Iterator[Arrival]:
    rows = read_trace(kind.trace)
    length_s = rows[-1].at_s + (rows[-1].at_s / max(len(rows) - 1, 1) or 1.0)
    lap = 0
    while True:
        for row in rows:
            at_s = (row.at_s + lap * length_s) / kind.speed
            if at_s >= until_s:
                return
            yield Arrival(at_s, row.prompt_tokens, row.output_tokens)
        lap += 1


def read_trace(path: Path) -> list[Arrival]:
    """The rows of a trace in order of time, the first at 0. Raises TraceError."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [_row(path, number, row) for number, row in enumerate(csv.DictReader(lines), start=2)]
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}; give the path of a CSV file with a column at_s") from None
    if not rows:
        raise TraceError(f"{path}: no row below the header; expected one for each request, with at_s in seconds")
    rows.sort(key=lambda row: row.at_s)
    first = rows[0].at_s
    return [Arrival(row.at_s - first, row.prompt_tokens, row.output_tokens) for row in rows]


def _row(path: Path, line: int, row: dict[str, str | None]) -> Arrival:
    try:
        lengths = [int(row[key] or 0) or None if key in row else None for key in ("prompt_tokens", "output_tokens")]
        return Arrival(float(row["at_s"] or ""), *lengths)
    except (KeyError, ValueError):
        raise TraceError(
            f"{path}, line {line}: expected at_s in seconds, and whole numbers in prompt_tokens and output_tokens"
        ) from None
