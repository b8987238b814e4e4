"""One condition of a rule: from `step_us: ">300"` to a closure that answers in a tenth of a microsecond.

Owns the small language of the values; the words on the left are variables.py. A list means "any of these".
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate

from gateway.routing.request import RouteRequest
from gateway.routing.variables import VARIABLES, Kind, Read, Variable

Predicate = Callable[[RouteRequest], bool]

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
    """A compiled condition, with what `explain` needs to show: the value wanted and how to read the actual one."""

    key: str
    wanted: object
    read: Read
    holds: Predicate


def compile_condition(key: str, wanted: object) -> Condition:
    """Compile one `key: wanted` pair of a `when:`. Raises ConditionError."""
    variable = VARIABLES.get(key)
    if variable is None:
        near = get_close_matches(key, VARIABLES, n=1)
        raise ConditionError(key, f"one of {', '.join(VARIABLES)}", key, f"did you mean {near[0]}?" if near else None)
    if isinstance(wanted, list):
        if not wanted:
            raise ConditionError(key, f"at least one value ({variable.kind.value})", wanted)
        holds = _any([_compile(variable, alternative) for alternative in wanted])
    else:
        holds = _compile(variable, wanted)
    return Condition(key, wanted, variable.read, holds)


def all_of(conditions: tuple[Condition, ...]) -> Predicate:
    """The predicate that all conditions hold; without any it always does."""
    tests = tuple(condition.holds for condition in conditions)
    if not tests:
        return lambda _: True
    if len(tests) == 1:
        return tests[0]

    def holds(request: RouteRequest) -> bool:
        for test in tests:  # noqa: SIM110 (no generator on the hot path)
            if not test(request):
                return False
        return True

    return holds


def _any(tests: list[Predicate]) -> Predicate:
    if len(tests) == 1:
        return tests[0]

    def holds(request: RouteRequest) -> bool:
        for test in tests:  # noqa: SIM110 (no generator on the hot path)
            if test(request):
                return True
        return False

    return holds


def _compile(variable: Variable, wanted: object) -> Predicate:
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


def _flag(variable: Variable, wanted: object) -> Predicate:
    if not isinstance(wanted, bool):
        raise ConditionError(variable.name, Kind.flag.value, wanted)
    read = variable.read
    return read if wanted else lambda request: not read(request)


def _choice(variable: Variable, wanted: object) -> Predicate:
    choices = variable.choices or {}
    if not isinstance(wanted, str) or wanted not in choices:
        near = get_close_matches(str(wanted), choices, n=1)
        raise ConditionError(
            variable.name, f"one of {', '.join(choices)}", wanted, f"did you mean {near[0]}?" if near else None
        )
    read, values = variable.read, frozenset(choices[wanted])
    return lambda request: read(request) in values


def _text(variable: Variable, wanted: object) -> Predicate:
    if not isinstance(wanted, str) or not wanted:
        raise ConditionError(variable.name, Kind.text.value, wanted)
    read = variable.read
    if variable.name == "method":
        wanted = wanted.upper()
    if not any(character in wanted for character in "*?["):
        return lambda request: bool(read(request) == wanted)
    matches = re.compile(translate(wanted)).match

    def holds(request: RouteRequest) -> bool:
        text = read(request)
        return text is not None and matches(text) is not None

    return holds


def _presence(variable: Variable, wanted: bool) -> Predicate:
    read = variable.read
    if variable.kind is Kind.count:
        return (lambda request: read(request) > 0) if wanted else (lambda request: read(request) <= 0)
    absent = variable.absent
    return (lambda request: read(request) != absent) if wanted else (lambda request: read(request) == absent)


def _number(variable: Variable, wanted: object) -> Predicate:
    test = _comparison(variable, wanted)
    if variable.kind is not Kind.optional:
        return test
    read, absent = variable.read, variable.absent
    return lambda request: read(request) != absent and test(request)


def _comparison(variable: Variable, wanted: object) -> Predicate:
    # One closure per operator: a call of a second function would double the time of a test.
    read = variable.read
    if isinstance(wanted, str) and ".." in wanted:
        low, high = (_parse(variable, wanted, bound) for bound in wanted.split("..", 1))
        if low > high:
            raise ConditionError(variable.name, "a range from the lower to the higher number", wanted)
        return lambda request: bool(low <= read(request) <= high)
    operator, limit = _operator(variable, wanted)
    match operator:
        case ">":
            return lambda request: bool(read(request) > limit)
        case ">=":
            return lambda request: bool(read(request) >= limit)
        case "<":
            return lambda request: bool(read(request) < limit)
        case "<=":
            return lambda request: bool(read(request) <= limit)
        case "!=":
            return lambda request: bool(read(request) != limit)
        case _:
            return lambda request: bool(read(request) == limit)


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
