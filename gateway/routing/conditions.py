"""One condition of a rule: from `step_us: ">300"` to an expression over the request.

Owns the small language of the values; the words on the left are variables.py. A list means "any of these".
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from typing import Protocol

from gateway.routing.acceptance import Acceptance, Span, any_accepted
from gateway.routing.expression import Expression, all_of, any_of, compile_first_match
from gateway.routing.knowledge import NOTHING_KNOWN, Knowledge
from gateway.routing.request import RouteRequest
from gateway.routing.variables import VARIABLES, Kind, Variable

_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|=|>|<)?\s*([^\s<>=!]+)\s*")
_COMPARISONS = '300, ">300", ">=300", "<300", "<=300", "!=300" or "100..300"'
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_PARAMETER = re.compile(r"[^\s&=#]{1,64}")
_NOT_SEEN = frozenset(
    ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
)
"""Headers of one connection, and those that are not kept: no rule can go by them."""


class ConditionError(ValueError):
    """A condition that can't be compiled: `key` is the word on the left, `hint` may say what was meant.

    path:   the keys below `key` that lead to what is wrong.
    quoted: `found` is a value, and no description of one.
    """

    def __init__(
        self,
        key: str,
        expected: str,
        found: object,
        hint: str | None = None,
        path: tuple[str, ...] = (),
        *,
        quoted: bool = True,
    ) -> None:
        shown = repr(found) if quoted else found
        super().__init__(f"{key}: expected {expected}, found {shown}" + (f" ({hint})" if hint else ""))
        self.key = key
        self.expected = expected
        self.found = found
        self.hint = hint
        self.path = path
        self.quoted = quoted


class Peek(Protocol):
    """Says what an expression that counts would say of a request, without counting it."""

    def __call__(self, request: RouteRequest) -> bool: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked condition, with what `explain` shows of it: the value wanted, the actual one, and whether it holds.

    accepts: what it takes of the values of `key`; None: that can't be said.
    actual:  reads the value that it looks at.
    peek:    set where evaluating the expression leaves a trace.
    """

    key: str
    wanted: object
    expression: Expression
    actual: Callable[[RouteRequest, Knowledge], object]
    accepts: Acceptance | None = None
    peek: Peek | None = None

    def read(self, request: RouteRequest, knows: Knowledge = NOTHING_KNOWN) -> object:
        """The actual value. Off the hot path."""
        return self.actual(request, knows)

    def holds(self, request: RouteRequest, knows: Knowledge = NOTHING_KNOWN) -> bool:
        """Whether the condition holds. Off the hot path: the router compiles the expressions of all rules together."""
        if self.peek is not None:
            return self.peek(request)
        return compile_first_match((self.expression,), knows)(request) == 0


def compile_conditions(when: Mapping[str, object]) -> Iterator[Condition]:
    """Compile the pairs of a `when:`, each entry of a mapping to a condition of its own. Raises ConditionError."""
    for key, wanted in when.items():
        variable = VARIABLES.get(key)
        if variable is not None and variable.entry is not None:
            yield from _entries(variable, variable.entry, wanted)
        else:
            yield compile_condition(key, wanted)


def compile_condition(key: str, wanted: object) -> Condition:
    """Compile one `key: wanted` pair whose key is no mapping. Raises ConditionError."""
    variable = VARIABLES.get(key)
    if variable is None:
        near = get_close_matches(key, VARIABLES, n=1)
        raise ConditionError(key, f"one of {', '.join(VARIABLES)}", key, f"did you mean {near[0]}?" if near else None)
    return _condition(variable, wanted)


def _entries(variable: Variable, entry: Callable[[str], Variable], wanted: object) -> Iterator[Condition]:
    if not isinstance(wanted, dict) or not wanted:
        raise ConditionError(variable.name, variable.kind.value, wanted)
    for name, value in wanted.items():
        if variable.name == "headers":
            _check_header(name)
        elif not _PARAMETER.fullmatch(name):
            raise ConditionError(variable.name, "the name of a parameter", name, path=(name,))
        try:
            yield _condition(entry(name), value)
        except ConditionError as error:
            raise ConditionError(variable.name, error.expected, error.found, error.hint, path=(name,)) from None


def _check_header(name: str) -> None:
    lower = name.lower()
    if not _HEADER.fullmatch(name):
        raise ConditionError("headers", "the name of a header", name, path=(name,))
    if lower in _NOT_SEEN or lower.startswith("x-steplane-"):
        raise ConditionError("headers", "a header that a client may choose freely", name, path=(name,))


def _condition(variable: Variable, wanted: object) -> Condition:
    if isinstance(wanted, list):
        if not wanted:
            raise ConditionError(variable.name, f"at least one value ({variable.kind.value})", wanted)
        tests = [_test(variable, alternative) for alternative in wanted]
        expression = any_of([test for test, _ in tests])
        accepts = any_accepted([accepted for _, accepted in tests])
    else:
        expression, accepts = _test(variable, wanted)
    return Condition(variable.name, wanted, expression, variable.read, accepts)


_Test = tuple[Expression, Acceptance]


def _test(variable: Variable, wanted: object) -> _Test:
    match variable.kind:
        case Kind.flag:
            return _flag(variable, wanted)
        case Kind.choice:
            return _choice(variable, wanted)
        case Kind.text:
            return _text(variable, wanted)
        case Kind.number:
            return _number(variable, wanted)
        case Kind.count | Kind.optional:
            return _presence(variable, wanted) if isinstance(wanted, bool) else _number(variable, wanted)
        case Kind.texts:
            raise ConditionError(variable.name, Kind.texts.value, wanted)


def _over(variable: Variable, text: str, *constants: object) -> Expression:
    """An expression over a variable; `{v}` in `text` stands for it, `{0}`, … for `constants`."""
    own = len(variable.constants)
    names = (f"{{{own + at}}}" for at in range(len(constants)))
    return Expression(text.format(*names, v=variable.text), (*variable.constants, *constants))


def _flag(variable: Variable, wanted: object) -> _Test:
    if not isinstance(wanted, bool):
        raise ConditionError(variable.name, Kind.flag.value, wanted)
    return _over(variable, "{v}" if wanted else "not {v}"), Acceptance(frozenset((wanted,)))


def _choice(variable: Variable, wanted: object) -> _Test:
    choices = variable.choices or {}
    if not isinstance(wanted, str) or wanted not in choices:
        near = get_close_matches(str(wanted), choices, n=1)
        raise ConditionError(
            variable.name, f"one of {', '.join(choices)}", wanted, f"did you mean {near[0]}?" if near else None
        )
    words = frozenset(choices[wanted])
    return _over(variable, "{v} in {0}", words), Acceptance(words)


def _text(variable: Variable, wanted: object) -> _Test:
    if isinstance(wanted, bool) and variable.name.startswith(("headers.", "query.")):
        given = "{v} is not None" if wanted else "{v} is None"
        return _over(variable, given), Acceptance(frozenset() if wanted else frozenset((None,)), ("*",) * wanted)
    if not isinstance(wanted, str) or not wanted:
        raise ConditionError(variable.name, Kind.text.value, wanted)
    if variable.name == "method":
        wanted = wanted.upper()
    if not any(character in wanted for character in "*?["):
        return _over(variable, "{v} == {0}", wanted), Acceptance(frozenset((wanted,)))
    matches = re.compile(translate(wanted)).match
    return _over(variable, "{v} is not None and {0}({v}) is not None", matches), Acceptance(patterns=(wanted,))


def _presence(variable: Variable, wanted: bool) -> _Test:
    if variable.kind is Kind.count:
        if wanted:
            return _over(variable, "{v} > 0"), Acceptance(spans=(Span(0.0, low_included=False),))
        return _over(variable, "{v} <= 0"), Acceptance(spans=(Span(high=0.0),))
    if wanted:
        return _present(variable), Acceptance(spans=(Span(),))
    return _over(variable, "{v} == {0}", variable.absent), Acceptance(frozenset((None,)))


def _present(variable: Variable) -> Expression:
    return _over(variable, "{v} != {0}", variable.absent)


def _number(variable: Variable, wanted: object) -> _Test:
    comparison, accepts = _comparison(variable, wanted)
    return (comparison if variable.kind is not Kind.optional else all_of((_present(variable), comparison))), accepts


def _comparison(variable: Variable, wanted: object) -> _Test:
    if isinstance(wanted, str) and ".." in wanted:
        low, high = (_parse(variable, wanted, bound) for bound in wanted.split("..", 1))
        if low > high:
            raise ConditionError(variable.name, "a range from the lower to the higher number", wanted)
        return _over(variable, "{0} <= {v} <= {1}", low, high), Acceptance(spans=(Span(low, high),))
    operator, limit = _operator(variable, wanted)
    if operator not in _SPANS:
        operator = "=="
    return _over(variable, f"{{v}} {operator} {{0}}", limit), Acceptance(spans=_SPANS[operator](limit))


_SPANS: Mapping[str, Callable[[float], tuple[Span, ...]]] = {
    ">": lambda limit: (Span(limit, low_included=False),),
    ">=": lambda limit: (Span(limit),),
    "<": lambda limit: (Span(high=limit, high_included=False),),
    "<=": lambda limit: (Span(high=limit),),
    "==": lambda limit: (Span(limit, limit),),
    "!=": lambda limit: (Span(high=limit, high_included=False), Span(limit, low_included=False)),
}


def _operator(variable: Variable, wanted: object) -> tuple[str, float]:
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return "==", _finite(variable, wanted, float(wanted))
    parts = _COMPARISON.fullmatch(wanted) if isinstance(wanted, str) else None
    if parts is None:
        raise ConditionError(variable.name, _COMPARISONS, wanted)
    return parts[1] or "==", _parse(variable, wanted, parts[2])


def _parse(variable: Variable, wanted: object, text: str) -> float:
    try:
        return _finite(variable, wanted, float(text))
    except ValueError:
        raise ConditionError(variable.name, _COMPARISONS, wanted) from None


def _finite(variable: Variable, wanted: object, number: float) -> float:
    if not math.isfinite(number):
        raise ConditionError(variable.name, _COMPARISONS, wanted)
    return number
