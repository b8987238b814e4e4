"""What an analysis found in one grammar: quantities by mechanism, and where they stand. Knows no price."""

from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

_MAX_FAULTS = 8


class Path(NamedTuple):
    """A place in a schema as a linked list, so that a walk adds one step without copying. None is the root."""

    parent: "Path | None"
    step: str | int


def steps_to(path: Path | None) -> list[str]:
    """The steps from the root to a place. One behind a reference stands where the reference points to, `#/...`, with
    which its path begins."""
    steps: list[str] = []
    while path is not None:
        step = str(path.step)
        if path.parent is None and step.startswith("#/"):
            steps.extend(unquote(part).replace("~1", "/").replace("~0", "~") for part in reversed(step[2:].split("/")))
        else:
            steps.append(step)
        path = path.parent
    return steps[::-1]


def pointer(path: Path | None) -> str:
    """The JSON pointer (RFC 6901) of a place; the root is the empty string."""
    return "".join(["/" + step.replace("~", "~0").replace("/", "~1") for step in steps_to(path)])


class Fault(NamedTuple):
    """Something wrong with a grammar whatever backend reads it: `code` is one of `pattern.FAULTS`."""

    code: str
    message: str


class Charge(NamedTuple):
    """A quantity of one mechanism at one place."""

    mechanism: str
    quantity: float
    path: Path | None


@dataclass(slots=True)
class Bill:
    """Everything that costs, in quantities that a price list turns into time.

    counts:  sums over the grammar, by mechanism: what compiling pays for.
    peaks:   the largest quantity at one place, by mechanism: what the dearest single step pays for.
    charges: quantities with their places; the cheap and numerous ones are left out. None where no explanation is
             wanted: they are most of what a bill holds.
    refused: why this backend does not compile the grammar, if it does not.
    faults:  what is wrong with it for every backend, the first few.
    heavy:   the bound of the analysis that was exceeded, if one was.
    """

    counts: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    charges: list[Charge] | None = None
    refused: str | None = None
    faults: list[Fault] = field(default_factory=list)
    heavy: str | None = None
    nodes: int = 0
    depth: int = 0

    def add(self, mechanism: str, quantity: float, path: Path | None) -> None:
        """Notes a quantity of a mechanism that may matter, with its place."""
        self.counts[mechanism] = self.counts.get(mechanism, 0.0) + quantity
        if quantity > self.peaks.get(mechanism, 0.0):
            self.peaks[mechanism] = quantity
        if self.charges is not None:
            self.charges.append(Charge(mechanism, quantity, path))

    def refuse(self, reason: str, path: Path | None, fault: str | None = None) -> None:
        """Notes a reason for which the backend refuses the grammar, and the fault that it is for any backend."""
        if self.refused is None:
            where = pointer(path)
            self.refused = f"{reason} (at {where})" if where else reason
        if fault is not None:
            self.blame(fault, reason, path)

    def blame(self, fault: str, reason: str, path: Path | None) -> None:
        """Notes something that is wrong with the grammar for any backend."""
        if len(self.faults) < _MAX_FAULTS:
            where = pointer(path)
            self.faults.append(Fault(fault, f"{reason} (at {where})" if where else reason))
