"""The parts of an expression in CEL, as parser.py reads them. Data alone.

`at` is where a part begins in the text, counted from 0.
"""

from dataclasses import dataclass


class CelError(ValueError):
    """An expression that can't be used: `expected` instead of `found`, at a place in its text."""

    def __init__(self, at: int, expected: str, found: str, hint: str | None = None) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.at = at
        self.expected = expected
        self.found = found
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    at: int
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Items:
    """A list of expressions."""

    at: int
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """`target.name`."""

    at: int
    target: "Node"
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`target[key]`."""

    at: int
    target: "Node"
    key: "Node"


@dataclass(frozen=True, slots=True)
class Function:
    """`name(…)`, or `target.name(…)`."""

    at: int
    name: str
    target: "Node | None"
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Unary:
    """`!x` or `-x`."""

    at: int
    operator: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions and what stands between them; `at` is where that stands."""

    at: int
    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Choice:
    """`condition ? yes : no`."""

    at: int
    condition: "Node"
    yes: "Node"
    no: "Node"


Node = Literal | Items | Name | Field | Index | Function | Unary | Binary | Choice
