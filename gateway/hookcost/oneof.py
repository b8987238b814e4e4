"""Whether the options of a `oneOf` exclude each other so plainly that llguidance sees it.

Follows `Schema::is_verifiably_disjoint_from` of llguidance 1.8 and 1.9 (`parser/src/json/schema.rs`): different types,
different literals, or objects that differ so in a required property. A reference alone is never looked through.
"""

from collections.abc import Mapping
from itertools import combinations

from gateway.hookcost.reference import References

_MAX_PAIRS = 2_000
_MAX_WORK = 2_000
"""Comparisons and parts looked at, of about half a microsecond; options that take more count as overlapping."""
_REFERENCE_STEPS = 4
"""Steps of following a reference for one unit of work."""
_MAX_DEPTH = 4
_META = frozenset(
    (
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "description",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    )
)
_TYPES = ("null", "boolean", "number", "string", "array", "object")

Atom = tuple[str, object]
"""A type and, where it is known, the literal (of a string or boolean) or the schema (of an object)."""


def is_plain(schema: Mapping[str, object]) -> bool:
    """Whether nothing but annotations stands in a schema."""
    return _META.issuperset(schema)


def excluding(options: list[object], references: References, through_references: bool) -> tuple[bool, int]:
    """Whether each two of the options exclude each other, and the work that it took to find out.

    through_references: the options are merged with siblings of the `oneOf`, which resolves their references.
    """
    if len(options) * (len(options) - 1) // 2 > _MAX_PAIRS:
        return False, 0
    comparison = _Comparison(references)
    try:
        return comparison.excluding(options, through_references), _MAX_WORK - comparison.left
    except _TooMuchError:
        return False, _MAX_WORK


class _TooMuchError(Exception):
    """The options take more work to tell apart than is spent on them."""


class _Comparison:
    """One look at the options of a `oneOf`; every part looked at is paid for, however often references multiply it."""

    __slots__ = ("_members", "_references", "left")

    def __init__(self, references: References) -> None:
        self._references = references
        self._members: dict[tuple[int, str, int], tuple[object, list[Atom] | None]] = {}
        """Of properties, by object, name and depth; with the object, so that no other one gets its id."""
        self.left = _MAX_WORK

    def excluding(self, options: list[object], through_references: bool) -> bool:
        atoms = [self._atoms(option, through_references, 0) for option in options]
        return all(self._disjoint(one, other, 0) for one, other in combinations(atoms, 2))

    def _spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise _TooMuchError

    def _resolve(self, uri: str) -> object:
        before = self._references.work
        target = self._references.resolve(uri)
        self._spend((self._references.work - before) // _REFERENCE_STEPS)
        return target

    def _atoms(self, schema: object, through_references: bool, depth: int) -> list[Atom] | None:
        """The alternatives that a schema is made of, None where it may be anything."""
        self._spend(1)
        if schema is False:
            return []
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return None
        if "$ref" in schema:
            if not (through_references or len(schema) > 1) or not isinstance(schema["$ref"], str):
                return None
            return self._atoms(self._resolve(schema["$ref"]), through_references, depth + 1)
        if "const" in schema:
            return [_literal(schema["const"])]
        values = schema.get("enum")
        if isinstance(values, list):
            self._spend(len(values))
            return [_literal(value) for value in values]
        branches = schema.get("allOf")
        if isinstance(branches, list):
            return self._atoms(self._merged(schema, branches), through_references, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            options = schema.get(keyword)
            if isinstance(options, list):
                through = through_references or len(schema) > 1
                found = [self._atoms(option, through, depth + 1) for option in options]
                if any(atoms is None for atoms in found):
                    return None
                return [atom for atoms in found for atom in atoms or []]
        kind = schema.get("type")
        if isinstance(kind, str):
            return [_typed(kind, schema)]
        if isinstance(kind, list):
            self._spend(len(kind))
            return [_typed(str(one), schema) for one in kind]
        return None if is_plain(schema) else [_typed(one, schema) for one in _TYPES]

    def _merged(self, schema: Mapping[str, object], branches: list[object]) -> dict[str, object]:
        """A schema with the branches of its `allOf` laid over it, as far as types, properties and `required` go."""
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        properties: dict[str, object] = {}
        required: list[object] = []
        for branch in [merged, *branches]:
            if isinstance(branch, dict) and isinstance(branch.get("$ref"), str):
                branch = self._resolve(branch["$ref"])
            if not isinstance(branch, dict):
                continue
            self._spend(len(branch))
            for name, value in branch.items():
                if name == "properties" and isinstance(value, dict):
                    self._spend(len(value))
                    properties |= value
                elif name == "required" and isinstance(value, list):
                    self._spend(len(value))
                    required += value
                else:
                    merged.setdefault(name, value)
        if properties:
            merged["properties"] = properties
        if required:
            merged["required"] = required
        return merged

    def _disjoint(self, one: list[Atom] | None, other: list[Atom] | None, depth: int) -> bool:
        self._spend(1 if one is None or other is None else len(one) * len(other))
        if one is None or other is None:
            return False
        return all(self._atoms_disjoint(ours, theirs, depth) for ours in one for theirs in other)

    def _atoms_disjoint(self, ours: Atom, theirs: Atom, depth: int) -> bool:
        if ours[0] != theirs[0]:
            return True
        if ours[0] in ("string", "boolean"):
            return ours[1] is not None and theirs[1] is not None and ours[1] != theirs[1]
        if ours[0] != "object" or depth > _MAX_DEPTH:
            return False
        one, other = ours[1], theirs[1]
        if not isinstance(one, dict) or not isinstance(other, dict):
            return False
        for needed in (one.get("required"), other.get("required")):
            for name in needed if isinstance(needed, list) else ():
                if isinstance(name, str):
                    mine, yours = self._member(one, name, depth), self._member(other, name, depth)
                    if self._disjoint(mine, yours, depth + 1):
                        return True
        return False

    def _member(self, schema: dict[str, object], name: str, depth: int) -> list[Atom] | None:
        """The alternatives of a property."""
        key = id(schema), name, depth
        known = self._members.get(key)
        if known is None:
            known = self._members[key] = schema, self._atoms(_property(schema, name), False, depth + 1)
        return known[1]


def _typed(kind: str, schema: object) -> Atom:
    if kind == "integer":
        kind = "number"
    return kind, schema if kind == "object" else None


def _literal(value: object) -> Atom:
    if isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "boolean", value
    if value is None:
        return "null", None
    if isinstance(value, list):
        return "array", None
    if isinstance(value, dict):
        properties = {name: {"const": item} for name, item in value.items()}
        return "object", {"properties": properties, "required": list(value)}
    return "number", None


def _property(schema: Mapping[str, object], name: str) -> object:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return schema.get("additionalProperties", True)
