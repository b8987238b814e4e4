"""Whether the options of a `oneOf` exclude each other so plainly that llguidance sees it.

Follows `Schema::is_verifiably_disjoint_from` of llguidance 1.8 and 1.9 (`parser/src/json/schema.rs`): different types,
different literals, or objects that differ so in a required property. A reference alone is never looked through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from gateway.hookcost.reference import resolve

_MAX_PAIRS = 2_000
_MAX_COMPARISONS = 2_000
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


def excluding(options: list[object], root: object, through_references: bool) -> bool:
    """Whether each two of the options exclude each other.

    through_references: the options are merged with siblings of the `oneOf`, which resolves their references.
    """
    if len(options) * (len(options) - 1) // 2 > _MAX_PAIRS:
        return False
    budget = _Budget(_MAX_COMPARISONS)
    atoms = [_atoms(option, root, through_references, 0) for option in options]
    return all(_disjoint(one, other, root, budget, 0) for one, other in combinations(atoms, 2))


def _atoms(schema: object, root: object, through_references: bool, depth: int) -> list[Atom] | None:
    """The alternatives that a schema is made of, None where it may be anything."""
    if schema is False:
        return []
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        if not (through_references or len(schema) > 1) or not isinstance(schema["$ref"], str):
            return None
        return _atoms(resolve(root, schema["$ref"]), root, through_references, depth + 1)
    if "const" in schema:
        return [_literal(schema["const"])]
    values = schema.get("enum")
    if isinstance(values, list):
        return [_literal(value) for value in values]
    branches = schema.get("allOf")
    if isinstance(branches, list):
        return _atoms(_merged(schema, branches, root), root, through_references, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list):
            through = through_references or len(schema) > 1
            found = [_atoms(option, root, through, depth + 1) for option in options]
            return None if any(atoms is None for atoms in found) else [atom for atoms in found for atom in atoms or []]
    kind = schema.get("type")
    if isinstance(kind, str):
        return [_typed(kind, schema)]
    if isinstance(kind, list):
        return [_typed(str(one), schema) for one in kind]
    return None if is_plain(schema) else [_typed(one, schema) for one in _TYPES]


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


def _merged(schema: Mapping[str, object], branches: list[object], root: object) -> dict[str, object]:
    """A schema with the branches of its `allOf` laid over it, as far as types, properties and `required` go."""
    merged = {name: value for name, value in schema.items() if name != "allOf"}
    properties: dict[str, object] = {}
    required: list[object] = []
    for branch in [merged, *branches]:
        if isinstance(branch, dict) and isinstance(branch.get("$ref"), str):
            branch = resolve(root, branch["$ref"])
        if not isinstance(branch, dict):
            continue
        for name, value in branch.items():
            if name == "properties" and isinstance(value, dict):
                properties |= value
            elif name == "required" and isinstance(value, list):
                required += value
            else:
                merged.setdefault(name, value)
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = required
    return merged


@dataclass(slots=True)
class _Budget:
    """Comparisons left; without any, options count as overlapping."""

    left: int


def _disjoint(one: list[Atom] | None, other: list[Atom] | None, root: object, budget: _Budget, depth: int) -> bool:
    if one is None or other is None:
        return False
    budget.left -= len(one) * len(other)
    if budget.left < 0:
        return False
    return all(_atoms_disjoint(ours, theirs, root, budget, depth) for ours in one for theirs in other)


def _atoms_disjoint(ours: Atom, theirs: Atom, root: object, budget: _Budget, depth: int) -> bool:
    if ours[0] != theirs[0]:
        return True
    if ours[0] in ("string", "boolean"):
        return ours[1] is not None and theirs[1] is not None and ours[1] != theirs[1]
    if ours[0] != "object" or depth > _MAX_DEPTH:
        return False
    one, other = ours[1], theirs[1]
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    for name in [*_strings(one.get("required")), *_strings(other.get("required"))]:
        budget.left -= 1
        if budget.left < 0:
            return False
        mine = _atoms(_property(one, name), root, False, depth + 1)
        yours = _atoms(_property(other, name), root, False, depth + 1)
        if _disjoint(mine, yours, root, budget, depth + 1):
            return True
    return False


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _property(schema: Mapping[str, object], name: str) -> object:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return schema.get("additionalProperties", True)
