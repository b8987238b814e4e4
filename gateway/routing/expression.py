"""Conditions as Python expressions, and many of them compiled into one function.

A closure for each condition costs a call for each rule and request; one function with the comparisons written out
decides eleven rules in a tenth of the time. Values of the configuration never become source text: they are constants
that the text refers to. What may stand in the text is the vocabulary of variables.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.request import RouteRequest

_PROLOGUE = """\
def first_match(request):
    classification = request.classification
    features = classification.features
    cost = classification.cost
"""


@dataclass(frozen=True, slots=True)
class Expression:
    """Source over `request`, `classification`, `features` and `cost`; `{0}`, `{1}`, … stand for `constants`."""

    text: str
    constants: tuple[object, ...] = ()


def all_of(expressions: Sequence[Expression]) -> Expression:
    """Holds when all hold; without any it always does."""
    return _joined(expressions, " and ", "True")


def any_of(expressions: Sequence[Expression]) -> Expression:
    """Holds when one of them does."""
    return _joined(expressions, " or ", "False")


def compile_first_match(expressions: Sequence[Expression]) -> Callable[[RouteRequest], int]:
    """A function that gives the index of the first expression that holds, or their number if none does."""
    constants: dict[str, object] = {}
    source = [_PROLOGUE]
    for index, expression in enumerate(expressions):
        names = [f"c{len(constants) + offset}" for offset in range(len(expression.constants))]
        constants.update(zip(names, expression.constants, strict=True))
        source.append(f"    if {expression.text.format(*names)}:\n        return {index}\n")
    source.append(f"    return {len(expressions)}\n")
    return _compiled("".join(source), constants)


def compile_value(text: str) -> Callable[[RouteRequest], object]:
    """A function that gives the value of a variable's text."""
    return _compiled(f"{_PROLOGUE}    return {text}\n", {})


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


def _compiled(source: str, constants: dict[str, object]) -> Callable[[RouteRequest], int]:
    namespace = dict(constants)
    exec(compile(source, "<routing rules>", "exec"), namespace)  # noqa: S102 (our own vocabulary; see the module's head)
    function: Callable[[RouteRequest], int] = namespace["first_match"]  # type: ignore[assignment]
    return function
