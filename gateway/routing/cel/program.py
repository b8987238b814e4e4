"""A condition in CEL, ready to be asked of requests.

Asking takes 2 to 4 µs, for reading the variables that it names and for the evaluator; no others are read. What can't be
evaluated does not hold: a value is absent that the expression needs, or it divides by zero; it is counted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.routing.cel.checker import REQUEST, STRINGS, Uses, check
from gateway.routing.cel.parser import parse
from gateway.routing.cel.tree import CelError
from gateway.routing.conditions import ConditionError
from gateway.routing.expression import PROLOGUE, compiled
from gateway.routing.knowledge import Knowledge
from gateway.routing.request import RouteRequest
from gateway.routing.variables import VARIABLES, Kind, Variable

Values = dict[str, object]
_SAID = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)")
_UNITS = ("_us", "_ms")


def _type(variable: Variable) -> str:
    match variable.kind:
        case Kind.text | Kind.choice:
            return "string"
        case Kind.flag:
            return "bool"
        case Kind.texts:
            return STRINGS
    return "double" if variable.name.endswith(_UNITS) else "int"


TYPES: Final[Mapping[str, str]] = {name: _type(variable) for name, variable in VARIABLES.items()}
"""The type of each variable, in CEL's words: times are doubles, counts and sizes ints."""
OPTIONAL: Final = frozenset(
    name for name, variable in VARIABLES.items() if variable.kind is Kind.optional or name == "model"
)
"""Variables that may be absent."""


@dataclass(slots=True)
class CelProgram:
    """A compiled condition.

    absent: how often it could not be evaluated because a value was not there. failed: how often for any other reason.
    """

    source: str
    _execute: Callable[[Values], object]
    _values: Callable[[RouteRequest, Knowledge], Values]
    _names: frozenset[str]
    absent: int = 0
    failed: int = 0

    def __call__(self, request: RouteRequest, knows: Knowledge) -> bool:
        """Whether it holds."""
        values = self._values(request, knows)
        try:
            return self._execute(values) is True
        except KeyError:
            self.absent += 1
        except Exception:
            # Of an undefined variable the evaluator says in words alone; which ones there are is known here.
            if self._lacks(values):
                self.absent += 1
            else:
                self.failed += 1
        return False

    def seen(self, request: RouteRequest, knows: Knowledge) -> object:
        """The values that it looks at, for people."""
        values = self._values(request, knows)
        inner = values.pop(REQUEST, {})
        assert isinstance(inner, dict)
        return {**inner, **values}

    def _lacks(self, values: Values) -> bool:
        inner = values.get(REQUEST)
        known = values.keys() | (inner.keys() if isinstance(inner, dict) else set())
        return not self._names <= known


def compile_cel(source: str) -> CelProgram:
    """Compile a condition. Raises ConditionError, which says where in the text the mistake is."""
    # The extension itself, and only for those who have such a rule: the package around it brings a command line, and
    # xds-protos, which is for `steplane epp`, puts another `cel/__init__.py` over it.
    from cel import cel

    try:
        uses = check(parse(source), TYPES, OPTIONAL)
        program = cel.compile(source)
    except CelError as error:
        raise _located(source, error.at, error.expected, error.found, error.hint) from None
    except ValueError as error:
        raise _of_evaluator(source, str(error)) from None
    return CelProgram(source, program.execute, _reader(uses), frozenset(uses.needed))


def _reader(uses: Uses) -> Callable[[RouteRequest, Knowledge], Values]:
    """A function that reads what an expression names, under the names that it uses."""
    constants: Values = {}
    lines = ["def values(request, knows):\n", PROLOGUE, "    found = {}\n"]
    for name in sorted(uses.names):
        lines += _lines("found", name, uses, constants)
    if uses.fields:
        lines.append(f"    fields = found[{REQUEST!r}] = {{}}\n")
        for name in sorted(uses.fields):
            lines += _lines("fields", name, uses, constants)
    lines.append("    return found\n")
    function: Callable[[RouteRequest, Knowledge], Values] = compiled("values", "".join(lines), constants)
    return function


def _lines(into: str, name: str, uses: Uses, constants: Values) -> list[str]:
    """The source that reads one variable, which is one of the table: its name is no text of the configuration."""
    variable = VARIABLES[name]
    if variable.entry is None:
        read = f"    value = {variable.text}\n"
        keep = f"    {into}[{name!r}] = value\n"
        if name not in OPTIONAL:
            return [read, keep]
        return [read, f"    if value != {variable.absent!r}:\n    {keep}"]
    lines = [f"    entries = {into}[{name!r}] = {{}}\n"]
    for entry in sorted(uses.entries[name]):
        key, read = f"c{len(constants)}", f"c{len(constants) + 1}"
        constants[key] = entry
        constants[read] = variable.entry(entry).constants[0]
        lines.append(f"    value = {read}(request.head)\n")
        lines.append(f"    if value is not None:\n        entries[{key}] = value\n")
    return lines


def _of_evaluator(source: str, said: str) -> ConditionError:
    """The error for what the evaluator refuses and our parser does not."""
    match = _SAID.search(said)
    if match is None:
        return ConditionError("cel", "an expression in CEL", source, said.splitlines()[0] if said else None)
    before = sum(len(line) + 1 for line in source.split("\n")[: int(match[1]) - 1])
    return _located(source, before + int(match[2]) - 1, "valid CEL", match[3], None)


def _located(source: str, at: int, expected: str, found: str, hint: str | None) -> ConditionError:
    """An error with its place in the expression, and the text around it."""
    line = source.count("\n", 0, at) + 1
    column = at - (source.rfind("\n", 0, at) + 1) + 1
    near = source[at : at + 24].split("\n")[0]
    where = f"at line {line}, column {column} of the expression" + (f": {near}" if near else "")
    return ConditionError("cel", expected, found, f"{where}; {hint}" if hint else where, quoted=False)
