"""What pages that are made from the code have in common: text that is safe in a table, and words for JSON's types."""

import json

KINDS = {"object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}
"""JSON Schema's types in the words of the pages; others are called as they are."""


def escaped(words: str) -> str:
    """As it reads, whatever Markdown would make of it."""
    return words.replace("|", "\\|").replace("<", "&lt;")


def cell(words: str) -> str:
    """The same, in one line of a table."""
    return escaped(" ".join(words.split()))


def literal(value: object) -> str:
    """A value as YAML and JSON spell it."""
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
