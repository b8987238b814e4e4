"""What is known of reloads: where the configuration came from, when, and what became of each try. Data only."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from gateway.control.changes import Change
from gateway.control.problem import Problem


class Outcome(StrEnum):
    """What became of a reload."""

    applied = "applied"
    """The new configuration is in force."""
    unchanged = "unchanged"
    """It says what the one in force says."""
    checked = "checked"
    """It could be applied; only that was asked."""
    refused = "refused"
    """It is wrong: the old one stays in force."""
    failed = "failed"
    """It could not be read or applied, by no fault of its own: the old one stays in force."""

    @property
    def is_good(self) -> bool:
        """The file is fit to be used."""
        return self in (Outcome.applied, Outcome.unchanged, Outcome.checked)


@dataclass(frozen=True, slots=True)
class Report:
    """One reload.

    trigger:  who asked: `file`, `signal` or `api`.
    at, took_s: time of day when it began, and how long it took, in seconds.
    problems: what is wrong with the file. warnings: what deserves a look.
    changes:  against the configuration that was in force; those that need a restart are not.
    error:    why it failed where the file is not to blame.
    """

    outcome: Outcome
    trigger: str
    at: float
    took_s: float
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    changes: tuple[Change, ...] = ()
    error: str | None = None

    @property
    def restart(self) -> tuple[str, ...]:
        """Keys of changes that only a restart takes over."""
        return tuple([change.key for change in self.changes if change.restart])

    @property
    def why(self) -> str | None:
        """What kept the configuration from being used, in a line; None where nothing did."""
        if self.error is not None:
            return self.error
        return "; ".join(map(str, self.problems)) or None


@dataclass(slots=True)
class Reloads:
    """Of one gateway. `loaded_at`: time of day since which the configuration is in force; `source` None: no file."""

    source: Path | None
    loaded_at: float
    wall: Callable[[], float]
    outcomes: Counter[str] = field(default_factory=Counter)
    last: Report | None = None
    """The last one that was to be applied."""
    last_failed: Report | None = None
    """The last of these that was not good, whatever came after it."""
    failing_since: float | None = None
    """Time of day of the first that failed since one was good; None where the last one was."""

    def count(self, report: Report, *, check: bool = False) -> None:
        """Note a reload; `check`: it was only asked what would come of it."""
        self.outcomes[report.outcome.value] += 1
        if check:
            return
        self.last = report
        if report.outcome.is_good:
            self.failing_since = None
        else:
            self.last_failed = report
            self.failing_since = self.failing_since or report.at
        if report.outcome is Outcome.applied:
            self.loaded_at = self.wall()


class Reloader(Protocol):
    """Who can do it."""

    @property
    def reloads(self) -> Reloads: ...

    async def reload(self, trigger: str, *, check: bool = False) -> Report:
        """Read the file again and apply it; `check`: only say what would come of it."""
