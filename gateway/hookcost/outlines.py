"""A JSON schema as outlines-core compiles it: one regular expression, and an index of all tokens for each state.

Each piece of the expression adds states, and each state is tried with the whole vocabulary. Optional properties are
spelled out in their combinations. Owns these quantities, seen on outlines-core 0.2.14; prices nothing.
"""

from gateway.hookcost.bill import Path
from gateway.hookcost.schemawalk import SchemaWalk

_MAX_OPTIONAL_POWER = 20


class OutlinesWalk(SchemaWalk):
    """A schema as outlines-core reads it."""

    __slots__ = ()

    def _read(self, schema: object, depth: int, path: Path | None, role: str | None) -> None:  # noqa: ARG002
        bill = self.bill
        bill.counts["nodes"] = bill.counts.get("nodes", 0.0) + 1.0
        if not isinstance(schema, dict):
            return
        if isinstance(schema.get("$ref"), str):
            again = schema["$ref"] in self._refs
            if self._follow(schema["$ref"], depth, path) is self._references.root or again:
                bill.add("recursion", 1.0, path)
            return
        for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if isinstance(schema.get(keyword), list):
                self._push_all(schema[keyword], keyword, depth, path)
        values = schema.get("enum")
        if isinstance(values, list):
            bill.add("enum_values", float(len(values)), path)
        if "pattern" in schema or "format" in schema:
            bill.add("patterns", 1.0, path)
        members = self._members({**schema, "patternProperties": {}}, depth, path) if "properties" in schema else None
        if members is not None:
            optional = sum([name not in members.needed for name in members.properties])
            if optional:
                bill.add("optional_combinations", 2.0 ** min(optional, _MAX_OPTIONAL_POWER), path)
        if "items" in schema:
            self._stack.append((schema["items"], depth + 1, Path(path, "items"), None))
