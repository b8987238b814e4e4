"""A JSON schema as outlines-core compiles it: one regular expression, and an index of all tokens for each state.

Each piece of the expression adds states, and each state is tried with the whole vocabulary. Optional properties are
spelled out in their combinations. Owns these quantities, seen on outlines-core 0.2.14; prices nothing.
"""

from gateway.hookcost.bill import Path
from gateway.hookcost.reference import MISSING, resolve
from gateway.hookcost.schemawalk import SchemaWalk

_MAX_OPTIONAL_POWER = 20


class OutlinesWalk(SchemaWalk):
    """A schema as outlines-core reads it."""

    __slots__ = ()

    def _read(self, schema: object, depth: int, path: Path | None, default_type: str | None) -> None:  # noqa: ARG002
        bill = self.bill
        bill.counts["nodes"] = bill.counts.get("nodes", 0.0) + 1.0
        if not isinstance(schema, dict):
            return
        if isinstance(schema.get("$ref"), str):
            uri = str(schema["$ref"])
            if uri in self._refs:
                bill.add("recursion", 1.0, path)
            else:
                self._refs.add(uri)
                target = resolve(self._root, uri)
                if target is MISSING:
                    bill.refuse(f"`$ref` points to nothing ({uri[:80]})", path)
                elif target is self._root:
                    bill.add("recursion", 1.0, path)
                else:
                    self._stack.append((target, depth + 1, Path(path, "$ref"), None))
            return
        for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            options = schema.get(keyword)
            if isinstance(options, list):
                for index, option in enumerate(options):
                    self._stack.append((option, depth + 1, Path(Path(path, keyword), index), None))
        values = schema.get("enum")
        if isinstance(values, list):
            bill.add("enum_values", float(len(values)), path)
        if "pattern" in schema or "format" in schema:
            bill.add("patterns", 1.0, path)
        properties = schema.get("properties")
        if isinstance(properties, dict) and self._fits(properties):
            required = schema.get("required")
            needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
            optional = sum(name not in needed for name in properties)
            if optional:
                bill.add("optional_combinations", 2.0 ** min(optional, _MAX_OPTIONAL_POWER), path)
            for name, value in properties.items():
                self._stack.append((value, depth + 1, Path(Path(path, "properties"), name), None))
        if "items" in schema:
            self._stack.append((schema["items"], depth + 1, Path(path, "items"), None))
