"""The bounded walk over a JSON schema that all backends share: order, depth and size, never what a node means."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gateway.hookcost.bill import Bill, Path
from gateway.hookcost.pattern import CONTRADICTION, MALFORMED, PatternBill
from gateway.hookcost.reference import MISSING, References
from gateway.hookcost.typename import standard_type
from gateway.hookcost.vocabulary import Vocabulary

_RANGE = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
MAX_NODES = 50_000
MAX_DEPTH = 64
MAX_PROPERTIES = 1_000
"""Of one object, named or by pattern, and names in its `required`."""
MAX_OPTIONS = 1_000
"""Of a union, or of an array's places. Real schemas have up to 200."""
REQUIRED, NAME = "required", "name"
"""What a node is to the one above it, where that matters: a required property, the schema of property names."""
_PATTERN_WORK = 30
"""What a pattern takes at the least, looked up or read."""
_REFERENCE_STEPS = 8
"""Steps of following a reference for one unit of work."""


class Members(NamedTuple):
    """What an object says about its properties by name, by pattern, and which of them it asks for."""

    properties: dict[str, object]
    patterns: dict[str, object]
    needed: set[str]


class SchemaWalk(ABC):
    """One pass over one schema with a stack of its own; `step` does a slice, so that it can spread over many turns."""

    __slots__ = ("_left", "_references", "_refs", "_stack", "_vocabulary", "bill")

    def __init__(self, schema: object, vocabulary: Vocabulary, bill: Bill) -> None:
        self.bill = bill
        self._vocabulary = vocabulary
        self._references = References(schema)
        self._refs: set[str] = set()
        self._left = 0
        self._stack: list[tuple[object, int, Path | None, str | None]] = [(schema, 0, None, None)]

    def step(self, work: int) -> bool:
        """Does about `work` units of work, a small node being one; True when there is nothing left to read."""
        bill, stack, read = self.bill, self._stack, self._read
        self._left = work
        while stack and self._left > 0:
            self._left -= 1
            bill.nodes += 1
            schema, depth, path, role = stack.pop()
            if depth > bill.depth:
                bill.depth = depth
                if depth > MAX_DEPTH:
                    self._give_up(f"a schema nested more than {MAX_DEPTH} deep")
                    break
            if bill.nodes > MAX_NODES:
                self._give_up(f"a schema of more than {MAX_NODES:,} nodes")
                break
            read(schema, depth, path, role)
        return not stack

    def _give_up(self, bound: str) -> None:
        self.bill.heavy = bound
        self._stack.clear()

    def _resolve(self, uri: str) -> object:
        """What a reference points at; pays for the way there."""
        references = self._references
        before = references.work
        target = references.resolve(uri)
        self._left -= (references.work - before) // _REFERENCE_STEPS
        return target

    def _follow(self, uri: object, depth: int, path: Path | None) -> object:
        """Pushes what a reference points at, the first time that it is met; returns it, or MISSING."""
        if not isinstance(uri, str):
            self.bill.refuse("`$ref` must be a string", path, MALFORMED)
            return MISSING
        target = self._resolve(uri)
        if target is MISSING:
            self.bill.refuse(f"`$ref` points to nothing ({uri[:80]})", path, MALFORMED)
        elif uri not in self._refs and target is not self._references.root:
            where = Path(None, uri) if uri.startswith("#/") else Path(path, "$ref")
            self._stack.append((target, depth + 1, where, None))
        self._refs.add(uri)
        return target

    def _members(self, schema: Mapping[str, object], depth: int, path: Path | None) -> Members | None:
        """The properties of an object, all of them pushed; None where the backend refuses them or they are too many."""
        properties = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(patterns, dict) or not isinstance(required, list):
            self.bill.refuse(
                "`properties` and `patternProperties` must be objects, `required` an array", path, MALFORMED
            )
            return None
        for members, what in ((properties, "properties"), (patterns, "patterns of properties"), (required, "required")):
            self._left -= len(members) // 2
            if len(members) > MAX_PROPERTIES:
                self._give_up(f"an object of more than {MAX_PROPERTIES:,} {what}")
                return None
        needed = {name for name in required if isinstance(name, str)}
        stack, here = self._stack, Path(path, "properties")
        for name, value in properties.items():
            stack.append((value, depth + 1, Path(here, name), REQUIRED if name in needed else None))
        for name, value in patterns.items():
            where = Path(Path(path, "patternProperties"), name)
            stack.append(({"type": "string", "pattern": name}, depth, where, None))
            stack.append((value, depth + 1, where, None))
        return Members(properties, patterns, needed)

    def _push_all(self, schemas: object, keyword: str, depth: int, path: Path | None) -> list[object] | None:
        """Pushes a list of schemas and returns it; None where it is none or too long to look at."""
        if not isinstance(schemas, list):
            self.bill.refuse(f"`{keyword}` must be an array", path, MALFORMED)
            return None
        self._left -= len(schemas) // 2
        if len(schemas) > MAX_OPTIONS:
            self._give_up(f"`{keyword}` with more than {MAX_OPTIONS:,} schemas")
            return None
        here = Path(path, keyword)
        self._stack.extend([(schema, depth + 1, Path(here, index), None) for index, schema in enumerate(schemas)])
        return schemas

    def _bounds(self, schema: Mapping[str, object], lowest: str, highest: str, path: Path | None) -> tuple[int, int]:
        """A pair of whole-number bounds, with -1 for an absent upper one; notes what is wrong with them."""
        low, high = schema.get(lowest, 0), schema.get(highest, -1)
        if low == 0 and high == -1:
            return 0, -1
        for name, value in ((lowest, low), (highest, high)):
            if isinstance(value, float) and value.is_integer():
                continue
            if type(value) is not int or (value < 0 and name in schema):
                self.bill.refuse(f"`{name}` must be a whole number of at least 0", path, MALFORMED)
                return 0, -1
        low, high = int(low), int(high)  # type: ignore[call-overload]
        if high != -1 and low > high:
            self.bill.refuse(f"`{lowest}` {low} is above `{highest}` {high}, so that nothing fits", path, CONTRADICTION)
        return low, high

    def _standard(self, kind: object, path: Path | None) -> str | None:
        """The type that an engine may take one for that is none of JSON Schema's; None where the backend refuses it."""
        standard = standard_type(kind) if isinstance(kind, str) else None
        if standard is None:
            self.bill.refuse(f"unsupported type {str(kind)[:40]!r}", path)
        return standard

    def _pattern(self, source: object, read: Callable[[str, Vocabulary], PatternBill], path: Path | None) -> None:
        """Puts the bill of a pattern, as the backend reads it, on the schema's."""
        if not isinstance(source, str):
            self.bill.refuse("`pattern` must be a string", path, MALFORMED)
            return
        found = read(source, self._vocabulary)
        self._left -= max(_PATTERN_WORK, found.work)
        if found.heavy is not None:
            self.bill.heavy = found.heavy
        if found.refused is not None:
            self.bill.refuse(found.refused, path)
        if found.fault is not None:
            self.bill.blame(found.fault, found.message, path)
        for mechanism, quantity in found.quantities:
            self.bill.add(mechanism, quantity, path)

    def _range(self, schema: Mapping[str, object], path: Path | None) -> bool:
        """Whether a number is bounded; notes bounds that exclude each other."""
        low, above = _bound(schema, "minimum", "exclusiveMinimum", max)
        high, below = _bound(schema, "maximum", "exclusiveMaximum", min)
        if low is not None and high is not None and (low > high or (low == high and (above or below))):
            self.bill.refuse(f"the lower bound {low} is not below the upper bound {high}", path, CONTRADICTION)
        return not _RANGE.isdisjoint(schema)

    @abstractmethod
    def _read(self, schema: object, depth: int, path: Path | None, role: str | None) -> None:
        """Takes one node to its quantities and pushes the nodes below it that the backend looks at."""


def _bound(
    schema: Mapping[str, object], inclusive: str, exclusive: str, tighter: Callable[[float, float], float]
) -> tuple[float | None, bool]:
    """The bound of a number and whether it is excluded itself; a boolean `exclusive...` is draft 4's."""
    bound, strict = schema.get(inclusive), schema.get(exclusive)
    value = bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None
    if strict is True:
        return value, True
    if isinstance(strict, bool) or not isinstance(strict, int | float):
        return value, False
    if value is None or tighter(value, strict) == strict:
        return strict, True
    return value, False
