"""What is inside a structural tag: the schemas, regexes and grammars between free text, wherever it nests them.

Reads the legacy form (`structures`, `triggers`) and the nested one (`format`) of xgrammar 0.1.25 and later, as SGLang
and vLLM pass them on. Analyses none of the parts.
"""

from collections.abc import Generator
from dataclasses import dataclass

from gateway.hookcost.features import Grammar

MAX_PARTS = 1_500
_TURN_PARTS = 250
_SCHEMA_KEYS = ("json_schema", "schema")
_NESTING_KEYS = ("format", "content", "elements", "tags", "structures", "tag", "begin", "end", "parts", "rules")


@dataclass(frozen=True, slots=True)
class Embedded:
    """One grammar inside a tag: `value` is a JSON schema, or the source of a regex or EBNF."""

    kind: Grammar
    value: object


def embedded(tag: object) -> Generator[None, None, list[Embedded] | str]:
    """The grammars in a tag in the order of reading, or the bound that it exceeds; yields after every few parts."""
    parts: list[Embedded] = []
    stack = [tag]
    seen = 0
    while stack:
        node = stack.pop()
        seen += 1
        if seen > MAX_PARTS:
            return f"a structural tag of more than {MAX_PARTS:,} parts"
        if seen % _TURN_PARTS == 0:
            yield
        if isinstance(node, list):
            stack.extend(reversed(node))
        elif isinstance(node, dict):
            kind = node.get("type")
            schemas = (node[key] for key in _SCHEMA_KEYS if isinstance(node.get(key), dict | bool))
            parts.extend(Embedded(Grammar.json_schema, schema) for schema in schemas)
            if kind == "regex" and isinstance(node.get("pattern"), str):
                parts.append(Embedded(Grammar.regex, node["pattern"]))
            if kind in ("grammar", "ebnf") and isinstance(node.get("grammar"), str):
                parts.append(Embedded(Grammar.ebnf, node["grammar"]))
            stack.extend(node[key] for key in reversed(_NESTING_KEYS) if isinstance(node.get(key), dict | list))
    return parts
