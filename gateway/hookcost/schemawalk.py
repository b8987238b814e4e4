"""The bounded walk over a JSON schema that all backends share: order, depth and size, never what a node means."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sized

from gateway.hookcost.bill import Bill, Path
from gateway.hookcost.pattern import CONTRADICTION, MALFORMED, PatternBill
from gateway.hookcost.typename import standard_type
from gateway.hookcost.vocabulary import Vocabulary

_RANGE = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"))
MAX_NODES = 50_000
MAX_DEPTH = 64
MAX_PROPERTIES = 1_000
MAX_OPTIONS = 1_000
"""Of a union, or of an array's places. Real schemas have up to 200."""
_PATTERN_WORK = 30
"""What a pattern takes at the least, looked up or read."""


class SchemaWalk(ABC):
    """One pass over one schema with a stack of its own; `step` does a slice, so that it can spread over many turns."""

    __slots__ = ("_left", "_refs", "_root", "_stack", "_vocabulary", "bill")

    def __init__(self, schema: object, vocabulary: Vocabulary, bill: Bill) -> None:
        self.bill = bill
        self._vocabulary = vocabulary
        self._root = schema
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
            schema, depth, path, default_type = stack.pop()
            if depth > bill.depth:
                bill.depth = depth
                if depth > MAX_DEPTH:
                    self._give_up(f"a schema nested more than {MAX_DEPTH} deep")
                    break
            if bill.nodes > MAX_NODES:
                self._give_up(f"a schema of more than {MAX_NODES:,} nodes")
                break
            read(schema, depth, path, default_type)
        return not stack

    def _give_up(self, bound: str) -> None:
        self.bill.heavy = bound
        self._stack.clear()

    def _fits(self, properties: Sized) -> bool:
        """Whether an object has few enough properties to look at; pays for the look."""
        self._left -= len(properties) // 2
        if len(properties) > MAX_PROPERTIES:
            self._give_up(f"an object of more than {MAX_PROPERTIES:,} properties")
            return False
        return True

    def _are_few(self, options: Sized, keyword: str) -> bool:
        """Whether a list of schemas is short enough to look at; pays for the look."""
        self._left -= len(options) // 2
        if len(options) > MAX_OPTIONS:
            self._give_up(f"`{keyword}` with more than {MAX_OPTIONS:,} schemas")
            return False
        return True

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

    def _odd_type(self, schema: Mapping[str, object], kind: object, depth: int, path: Path | None) -> None:
        """A type that is none of JSON Schema's: read as what an engine may take it for, else refused by the backend."""
        standard = standard_type(kind) if isinstance(kind, str) else None
        if standard is None:
            self.bill.refuse(f"unsupported type {str(kind)[:40]!r}", path)
        else:
            self._stack.append(({**schema, "type": standard}, depth, path, None))

    def _take(self, found: PatternBill, path: Path | None) -> None:
        """Puts the bill of a pattern on the schema's."""
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
    def _read(self, schema: object, depth: int, path: Path | None, default_type: str | None) -> None:
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
