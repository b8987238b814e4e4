"""Conditions as Python expressions, and many of them compiled into one function.

A closure for each condition costs a call for each rule and request; one function with the comparisons written out
decides eleven rules in a tenth of the time. Values of the configuration never become source text: they are constants
that the text refers to. What may stand in the text is the vocabulary of variables.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.routing.knowledge import NOTHING_KNOWN, Knowledge
from gateway.routing.request import RouteRequest

PROLOGUE = """\
    classification = request.classification
    features = classification.features
    cost = classification.cost
"""
"""What the text of an expression may refer to, beside `request` and `knows`."""

_CHUNK = 16
"""So many rules are looked at between two checks whether an earlier one has been found elsewhere."""


@dataclass(frozen=True, slots=True)
class Expression:
    """Source over `request`, `classification`, `features`, `cost` and `knows`; `{0}`, … stand for `constants`."""

    text: str
    constants: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbered:
    """An expression and the number that is found where it holds.

    alone: it must not be evaluated where an expression of a lower number holds.
    """

    number: int
    expression: Expression
    alone: bool = False


def all_of(expressions: Sequence[Expression]) -> Expression:
    """Holds when all hold; without any it always does."""
    return _joined(expressions, " and ", "True")


def any_of(expressions: Sequence[Expression]) -> Expression:
    """Holds when one of them does."""
    return _joined(expressions, " or ", "False")


def compile_first_match(
    expressions: Sequence[Expression], knows: Knowledge = NOTHING_KNOWN
) -> Callable[[RouteRequest], int]:
    """A function that gives the index of the first expression that holds, or their number if none does."""
    constants: dict[str, object] = {}
    source = ["def first_match(request):\n", PROLOGUE]
    for index, expression in enumerate(expressions):
        source.append(f"    if {_named(expression, constants)}:\n        return {index}\n")
    source.append(f"    return {len(expressions)}\n")
    function: Callable[[RouteRequest], int] = compiled("first_match", "".join(source), {**constants, "knows": knows})
    return function


def compile_least_match(numbered: Sequence[Numbered], knows: Knowledge) -> Callable[[RouteRequest, int], int]:
    """A function that gives the lowest number whose expression holds, if it is below the limit; else the limit."""
    constants: dict[str, object] = {}
    source = ["def least_match(request, limit):\n", PROLOGUE]
    for at, each in enumerate(numbered):
        if each.alone or at % _CHUNK == 0:
            source.append(f"    if limit <= {each.number}:\n        return limit\n")
        text = _named(each.expression, constants)
        source.append(f"    if {text}:\n        return {each.number} if {each.number} < limit else limit\n")
    source.append("    return limit\n")
    namespace = {**constants, "knows": knows}
    function: Callable[[RouteRequest, int], int] = compiled("least_match", "".join(source), namespace)
    return function


def compile_value(text: str, constants: Sequence[object] = ()) -> Callable[[RouteRequest, Knowledge], object]:
    """A function that gives the value of a variable's text."""
    names = {f"c{at}": constant for at, constant in enumerate(constants)}
    source = f"def value(request, knows):\n{PROLOGUE}    return {text.format(*names)}\n"
    function: Callable[[RouteRequest, Knowledge], object] = compiled("value", source, names)
    return function


def compiled(name: str, source: str, namespace: dict[str, object]) -> Callable[..., Any]:
    """The function `name` of some source in our own vocabulary. `namespace` is what it sees."""
    exec(compile(source, "<routing rules>", "exec"), namespace)  # noqa: S102 (see the module's head)
    function: Callable[..., Any] = namespace[name]  # type: ignore[assignment]
    return function


def _named(expression: Expression, constants: dict[str, object]) -> str:
    """The text of an expression with its constants named; they are added to `constants`."""
    names = [f"c{len(constants) + offset}" for offset in range(len(expression.constants))]
    constants.update(zip(names, expression.constants, strict=True))
    return expression.text.format(*names)


def _joined(expressions: Sequence[Expression], word: str, empty: str) -> Expression:
    if len(expressions) == 1:
        return expressions[0]
    constants: list[object] = []
    texts: list[str] = []
    for expression in expressions:
        shifted = (f"{{{len(constants) + offset}}}" for offset in range(len(expression.constants)))
        texts.append(f"({expression.text.format(*shifted)})")
        constants.extend(expression.constants)
    return Expression(word.join(texts) or empty, tuple(constants))
