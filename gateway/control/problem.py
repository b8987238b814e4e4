"""What is wrong with a configuration file, and where: the form in which every check reports.

Knows no file format and no rule; it only says how a finding reads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding.

    line, column: counted from 1.
    key:          path of the key, as in `pools.grammar.replicas[1].url`; "" for the file as a whole.
    expected:     what would have been right.
    found:        what stood there, or None where nothing did.
    hint:         what to do, where there is something more to say.
    """

    file: str
    line: int
    column: int
    key: str
    expected: str
    found: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.said}"

    @property
    def said(self) -> str:
        """All but the place in a file."""
        key = f"{self.key}: " if self.key else ""
        found = f", found {self.found}" if self.found is not None else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{key}expected {self.expected}{found}{hint}"


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """In the order of the files, as somebody goes through them."""
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))


class ConfigError(Exception):
    """A configuration that can't be used, with all that was found wrong, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def shown(value: object) -> str:
    """A value as it may stand in a message: YAML-like, on one line, cut when long."""
    match value:
        case None:
            text = "nothing"
        case bool():
            text = "true" if value else "false"
        case dict():
            text = f"a mapping with {', '.join(map(str, value))}" if value else "an empty mapping"
        case list():
            text = f"a list of {len(value)}" if value else "an empty list"
        case _:
            text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
