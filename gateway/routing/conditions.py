"""One condition of a rule: from `step_us: ">300"` to an expression over the request.

Owns the small language of the values; the words on the left are variables.py. A list means "any of these".
"""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate

from gateway.routing.expression import Expression, all_of, any_of, compile_first_match
from gateway.routing.request import RouteRequest
from gateway.routing.variables import VARIABLES, Kind, Variable

_COMPARISON = re.compile(r"\s*(>=|<=|==|!=|=|>|<)?\s*([^\s<>=!]+)\s*")
_COMPARISONS = '300, ">300", ">=300", "<300", "<=300", "!=300" or "100..300"'


class ConditionError(ValueError):
    """A condition that can't be compiled: `key` is the word on the left, `hint` may say what was meant."""

    def __init__(self, key: str, expected: str, found: object, hint: str | None = None) -> None:
        super().__init__(f"{key}: expected {expected}, found {found!r}" + (f" ({hint})" if hint else ""))
        self.key = key
        self.expected = expected
        self.found = found
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Condition:
    """A checked condition, with what `explain` shows of it: the value wanted, the actual one, and whether it holds."""

    key: str
    wanted: object
    variable: Variable
    expression: Expression

    def read(self, request: RouteRequest) -> object:
        """The actual value. Off the hot path."""
        return self.variable.read(request)

    def holds(self, request: RouteRequest) -> bool:
        """Whether the condition holds. Off the hot path: the router compiles the expressions of all rules together."""
        return compile_first_match((self.expression,))(request) == 0


def compile_condition(key: str, wanted: object) -> Condition:
    """Compile one `key: wanted` pair of a `when:`. Raises ConditionError."""
    variable = VARIABLES.get(key)
    if variable is None:
        near = get_close_matches(key, VARIABLES, n=1)
        raise ConditionError(key, f"one of {', '.join(VARIABLES)}", key, f"did you mean {near[0]}?" if near else None)
    if isinstance(wanted, list):
        if not wanted:
            raise ConditionError(key, f"at least one value ({variable.kind.value})", wanted)
        expression = any_of([_expression(variable, alternative) for alternative in wanted])
    else:
        expression = _expression(variable, wanted)
    return Condition(key, wanted, variable, expression)


def _expression(variable: Variable, wanted: object) -> Expression:
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


def _flag(variable: Variable, wanted: object) -> Expression:
    if not isinstance(wanted, bool):
        raise ConditionError(variable.name, Kind.flag.value, wanted)
    return Expression(variable.text if wanted else f"not {variable.text}")


def _choice(variable: Variable, wanted: object) -> Expression:
    choices = variable.choices or {}
    if not isinstance(wanted, str) or wanted not in choices:
        near = get_close_matches(str(wanted), choices, n=1)
        raise ConditionError(
            variable.name, f"one of {', '.join(choices)}", wanted, f"did you mean {near[0]}?" if near else None
        )
    return Expression(f"{variable.text} in {{0}}", (frozenset(choices[wanted]),))


def _text(variable: Variable, wanted: object) -> Expression:
    if not isinstance(wanted, str) or not wanted:
        raise ConditionError(variable.name, Kind.text.value, wanted)
    if variable.name == "method":
        wanted = wanted.upper()
    if not any(character in wanted for character in "*?["):
        return Expression(f"{variable.text} == {{0}}", (wanted,))
    matches = re.compile(translate(wanted)).match
    return Expression(f"{variable.text} is not None and {{0}}({variable.text}) is not None", (matches,))


def _presence(variable: Variable, wanted: bool) -> Expression:
    if variable.kind is Kind.count:
        return Expression(f"{variable.text} > 0" if wanted else f"{variable.text} <= 0")
    return _present(variable) if wanted else Expression(f"{variable.text} == {{0}}", (variable.absent,))


def _present(variable: Variable) -> Expression:
    return Expression(f"{variable.text} != {{0}}", (variable.absent,))


def _number(variable: Variable, wanted: object) -> Expression:
    comparison = _comparison(variable, wanted)
    return comparison if variable.kind is not Kind.optional else all_of((_present(variable), comparison))


def _comparison(variable: Variable, wanted: object) -> Expression:
    if isinstance(wanted, str) and ".." in wanted:
        low, high = (_parse(variable, wanted, bound) for bound in wanted.split("..", 1))
        if low > high:
            raise ConditionError(variable.name, "a range from the lower to the higher number", wanted)
        return Expression(f"{{0}} <= {variable.text} <= {{1}}", (low, high))
    operator, limit = _operator(variable, wanted)
    if operator not in (">", ">=", "<", "<=", "!="):
        operator = "=="
    return Expression(f"{variable.text} {operator} {{0}}", (limit,))


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
