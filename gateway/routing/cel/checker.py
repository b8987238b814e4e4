"""Whether the types of an expression fit, and what it reads of a request.

Types are written as CEL writes them: `bool`, `int`, `double`, `string`, `list(int)`, `map(string, string)`. Numbers of
both kinds may be compared, as Kubernetes allows it; they don't mix in arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from gateway.routing.cel.tree import Binary, CelError, Choice, Field, Function, Index, Items, Literal, Name, Node, Unary

REQUEST = "request"
"""All variables are fields of it, too: `request.step_us` is `step_us`."""
STRINGS = "map(string, string)"
_NUMBERS = frozenset(("int", "double"))
_CONVERSIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset(("int", "double", "string")),
    "double": frozenset(("int", "double", "string")),
    "string": frozenset(("int", "double", "string", "bool")),
}
_TESTS = frozenset(("startsWith", "endsWith", "contains"))
_LOOPS = frozenset(("all", "exists", "exists_one", "map", "filter"))
_LITERAL_TYPES: Mapping[type, str] = {bool: "bool", int: "int", float: "double", str: "string", type(None): "null"}


@dataclass(slots=True)
class Uses:
    """What an expression reads, and how it says so: plain names, fields of `request`, and names in each map.

    needed: variables that it reads elsewhere than in `has`.
    """

    names: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    entries: dict[str, set[str]] = field(default_factory=dict)


def check(node: Node, types: Mapping[str, str], optional: frozenset[str]) -> Uses:
    """What an expression reads. Raises CelError where a type does not fit, a name is unknown, or it is no condition.

    types: of the variables, by name. optional: those that may be absent.
    """
    checker = _Checker(types, optional)
    found = checker.type_of(node)
    if found != "bool":
        raise CelError(_begin(node), "a condition, which is true or false", _a(found))
    return checker.uses


class _Checker:
    def __init__(self, types: Mapping[str, str], optional: frozenset[str]) -> None:
        self._types = types
        self._optional = optional
        self.uses = Uses()

    def type_of(self, node: Node) -> str:
        match node:
            case Literal(value=value):
                return _LITERAL_TYPES[type(value)]
            case Items():
                return self._list(node)
            case Name():
                return self._variable(node.at, node.name, self.uses.names)
            case Field():
                return self._field(node)
            case Index():
                return self._index(node)
            case Function():
                return self._function(node)
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
            case Choice():
                return self._choice(node)

    def _variable(self, at: int, name: str, used: set[str]) -> str:
        found = self._types.get(name)
        if found is None:
            near = get_close_matches(name, self._types, n=1)
            hint = f"did you mean {near[0]}?" if near else "docs/rules.md lists the variables"
            raise CelError(at, "a variable of a request", name, hint)
        used.add(name)
        self.uses.needed.add(name)
        if found == STRINGS:
            self.uses.entries.setdefault(name, set())
        return found

    def _list(self, node: Items) -> str:
        kinds = {self.type_of(item) for item in node.items}
        if len(kinds) != 1:
            found = f"{', '.join(sorted(kinds))}" if kinds else "an empty list"
            raise CelError(node.at, "a list of values of one type", found)
        return f"list({kinds.pop()})"

    def _field(self, node: Field) -> str:
        if isinstance(node.target, Name) and node.target.name == REQUEST:
            return self._variable(node.at, node.name, self.uses.fields)
        target = self.type_of(node.target)
        if target != STRINGS:
            raise CelError(node.at, "an operator", f".{node.name} of {_a(target)}", "only request has fields")
        self._entry(node.target, node.name)
        return "string"

    def _index(self, node: Index) -> str:
        target, key = self.type_of(node.target), self.type_of(node.key)
        if target == STRINGS:
            if not isinstance(node.key, Literal) or not isinstance(node.key.value, str):
                raise CelError(_begin(node.key), "a name in quotes", _a(key))
            self._entry(node.target, node.key.value)
            return "string"
        if not target.startswith("list("):
            raise CelError(node.at, "a list or a mapping before [", _a(target))
        if key != "int":
            raise CelError(_begin(node.key), "a whole number", _a(key))
        return target[5:-1]

    def _entry(self, target: Node, name: str) -> None:
        """A name in a map is read; the map is a variable, for there are no others."""
        assert isinstance(target, Name | Field)
        self.uses.entries[target.name].add(name)

    def _function(self, node: Function) -> str:
        name = node.name
        if name in _LOOPS:
            raise CelError(node.at, "a function without a loop", name, "`x in [a, b]` asks for one of several values")
        if node.target is None:
            return self._has(node) if name == "has" else self._plain_function(node)
        target = self.type_of(node.target)
        if name == "size" and not node.arguments:
            return self._size(node.at, target)
        if name == "matches":
            # The evaluator compiles the pattern anew each time: 30 µs for a simple one, 13 ms for \w{1,50}.
            hint = "use startsWith, endsWith, contains, or a plain key with * and ? beside `cel`"
            raise CelError(node.at, "a function of bounded cost", name, hint)
        if name not in _TESTS:
            near = get_close_matches(name, (*_TESTS, "size"), n=1)
            known = ", ".join(sorted((*_TESTS, "size")))
            raise CelError(node.at, f"one of {known}", name, f"did you mean {near[0]}?" if near else None)
        if target != "string":
            raise CelError(node.at, f"a string before .{name}", _a(target))
        self._arguments(node, ("string",))
        return "bool"

    def _plain_function(self, node: Function) -> str:
        name = node.name
        if name != "size" and name not in _CONVERSIONS:
            known = (*_CONVERSIONS, "has", "size")
            near = get_close_matches(name, known, n=1)
            raise CelError(
                node.at, f"one of {', '.join(sorted(known))}", name, f"did you mean {near[0]}?" if near else None
            )
        if len(node.arguments) != 1:
            raise CelError(node.at, f"{name} with one value", f"{len(node.arguments)}")
        argument = self.type_of(node.arguments[0])
        if name == "size":
            return self._size(node.at, argument)
        if argument not in _CONVERSIONS[name]:
            raise CelError(_begin(node.arguments[0]), f"what can become {_a(name)}", _a(argument))
        return name

    def _size(self, at: int, of: str) -> str:
        if of != "string" and not of.startswith("list("):
            raise CelError(at, "a string or a list", _a(of))
        return "int"

    def _has(self, node: Function) -> str:
        asked = node.arguments[0] if len(node.arguments) == 1 else None
        if not isinstance(asked, Field):
            raise CelError(node.at, "has(request.name), has(headers.name) or has(query.name)", "something else")
        needed = set(self.uses.needed)
        self.type_of(asked)
        self.uses.needed = needed
        of_request = isinstance(asked.target, Name) and asked.target.name == REQUEST
        if of_request and asked.name not in self._optional:
            raise CelError(asked.at, f"one of {', '.join(sorted(self._optional))}", asked.name, "it is always there")
        return "bool"

    def _arguments(self, node: Function, wanted: tuple[str, ...]) -> None:
        found = tuple([self.type_of(argument) for argument in node.arguments])
        if found != wanted:
            raise CelError(node.at, f"{node.name}({', '.join(wanted)})", f"{node.name}({', '.join(found)})")

    def _unary(self, node: Unary) -> str:
        operand = self.type_of(node.operand)
        if node.operator == "!" and operand != "bool":
            raise CelError(node.at, "a condition behind !", _a(operand))
        if node.operator == "-" and operand not in _NUMBERS:
            raise CelError(node.at, "a number behind -", _a(operand))
        return operand

    def _binary(self, node: Binary) -> str:
        left, right = self.type_of(node.left), self.type_of(node.right)
        operator = node.operator
        both_numbers = left in _NUMBERS and right in _NUMBERS
        if operator in ("&&", "||"):
            for side, found in ((node.left, left), (node.right, right)):
                if found != "bool":
                    raise CelError(_begin(side), f"a condition beside {operator}", _a(found))
            return "bool"
        if operator == "in":
            if right not in (f"list({left})", STRINGS) or (right == STRINGS and left != "string"):
                raise CelError(node.at, f"a list of {left} behind `in`", _a(right))
            if right == STRINGS:
                if not isinstance(node.left, Literal) or not isinstance(node.left.value, str):
                    raise CelError(_begin(node.left), "a name in quotes", "an expression")
                self._entry(node.right, node.left.value)
            return "bool"
        if operator in ("==", "!="):
            if left != right and not both_numbers:
                raise CelError(
                    node.at, f"values of one type on both sides of {operator}", f"{_a(left)} and {_a(right)}"
                )
            if left == STRINGS:
                raise CelError(node.at, "values that can be compared", _a(left))
            return "bool"
        if operator in ("<", "<=", ">", ">="):
            if not both_numbers and (left, right) != ("string", "string"):
                raise CelError(
                    node.at, f"two numbers, or two strings, around {operator}", f"{_a(left)} and {_a(right)}"
                )
            return "bool"
        return _arithmetic(node, left, right)

    def _choice(self, node: Choice) -> str:
        condition = self.type_of(node.condition)
        if condition != "bool":
            raise CelError(_begin(node.condition), "a condition before ?", _a(condition))
        yes, no = self.type_of(node.yes), self.type_of(node.no)
        if yes != no:
            raise CelError(node.at, "values of one type behind ? and :", f"{_a(yes)} and {_a(no)}")
        return yes


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _arithmetic(node: Binary, left: str, right: str) -> str:
    allowed = {"+": ("int", "double", "string"), "%": ("int",)}.get(node.operator, ("int", "double"))
    if left == right and left in allowed:
        return left
    hint = None
    if {left, right} == _NUMBERS and node.operator != "%":
        hint = "write the whole number with a point, as in 2.0, or convert it: double(n)"
    expected = f"two values of one type ({' or '.join(allowed)}) around {node.operator}"
    raise CelError(node.at, expected, f"{_a(left)} and {_a(right)}", hint)


def _begin(node: Node) -> int:
    """Where the text of a part begins: that of an operator's left side stands before it."""
    match node:
        case Binary(left=left):
            return _begin(left)
        case Choice(condition=condition):
            return _begin(condition)
        case Field(target=target) | Index(target=target):
            return _begin(target)
        case Function(target=target) if target is not None:
            return _begin(target)
    return node.at
