"""Made-up schemas in which one mechanism at a time grows, so that its price shows apart from the others'."""

from collections.abc import Iterator
from typing import Any

_WORDS = (
    *("account", "balance", "channel", "device", "element", "factor", "group"),
    *("handle", "index", "journal", "kernel", "label", "metric", "number"),
)


def doses() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and schemas: for each mechanism a series of doses."""
    yield "any", {"type": "object", "additionalProperties": False, "properties": {}}
    for count in (1, 5, 20, 60):
        properties = {_name(i): {"type": "string"} for i in range(count)}
        yield f"closed-{count}", _object(properties, list(properties))
        yield f"optional-{count}", _object(properties, [])
        yield f"integers-{count}", _object({_name(i): {"type": "integer"} for i in range(count)}, [])
    for count in (1, 4, 8, 14):
        properties = {_name(i): {"type": "string"} for i in range(count)}
        yield f"open-{count}", {**_object(properties, []), "additionalProperties": True}
    for low in (1, 10):
        yield (
            f"min-properties-{low}",
            {**_object({_name(i): {"type": "string"} for i in range(30)}, []), "minProperties": low},
        )
    for source in ("[0-9]", "[a-z]", "[A-Za-z0-9_-]", "[a-z ]", "."):
        for count in (16, 64, 128, 200):
            yield f"pattern-{source}-{count}", _field({"type": "string", "pattern": f"^{source}{{1,{count}}}$"})
        yield f"loop-{source}", _field({"type": "string", "pattern": f"^{source}+$"})
    for form in ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"):
        yield f"format-{form}", _field({"type": "string", "format": form})
    for count in (10, 200, 3000):
        yield f"enum-{count}", _field({"enum": [f"value {i} of the list" for i in range(count)]})
    for bound in (8, 64, 1000):
        yield f"max-length-{bound}", _field({"type": "string", "maxLength": bound})
        yield f"max-items-{bound}", _field({"type": "array", "items": {"type": "integer"}, "maxItems": bound})
    for count in (2, 8, 24):
        options = [
            _object({f"kind{i}": {"const": i}, _name(i): {"type": "string"}}, [f"kind{i}"]) for i in range(count)
        ]
        yield f"union-{count}", _field({"anyOf": options})


def _name(index: int) -> str:
    return f"{_WORDS[index % len(_WORDS)]}_{index}"


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    return _object({"x": schema}, ["x"])
