"""JSON schemas in one spelling, so that engines that cache compiled grammars by their text have equal ones once.

Changes whitespace, and the order of the keywords of a schema, which no engine looks at. Never the order of what stands
in `properties`, which decides the order of the output, nor any value: `enum`, `const`, `default` and whatever is not
known for a keyword that holds schemas. All of the body outside the schema stays as it came. Pure, and only for pools
that want it; what was spelled once is remembered by its bytes.
"""

import json
from collections.abc import Sequence
from typing import Final

from gateway.hookcost.cache import TextCache
from gateway.hookcost.features import Api
from gateway.hookcost.objecttext import UNREADABLE, changed, fields_of

_MOST_BYTES: Final = 32 * 1024
"""A larger schema is sent as it came: spelling it would hold up the event loop for milliseconds."""
_MOST_BODY_BYTES: Final = 1 << 20
"""So is a larger body: finding the schema in it would, too."""
_MOST_LEVELS: Final = 64
_CACHE_BYTES: Final = 16 * 1024 * 1024

_FORMAT: Final = ("response_format", "json_schema", "schema")
_PLACES: Final[dict[Api, tuple[tuple[str, ...], ...]]] = {
    Api.chat: (_FORMAT, ("guided_json",), ("structured_outputs", "json")),
    Api.completions: (_FORMAT, ("json_schema",), ("guided_json",), ("structured_outputs", "json")),
    Api.responses: (("text", "format", "schema"), ("guided_json",), ("structured_outputs", "json")),
    Api.messages: (("output_config", "format", "schema"),),
    Api.generate: (("sampling_params", "json_schema"), ("sampling_params", "structured_outputs", "json")),
}
"""Where a schema stands that constrains the whole answer. Those of tools are part of the prompt, and left alone."""

_OF_SCHEMA: Final = frozenset(
    (
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_OF_SCHEMAS: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_BY_NAME: Final = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
"""Mappings whose keys are names: their order is kept."""


class SchemaSpelling:
    """Spells schemas, and remembers those that it has spelled. Belongs to one event loop."""

    __slots__ = ("_spelled",)

    def __init__(self) -> None:
        self._spelled: TextCache[bytes] = TextCache(_CACHE_BYTES)

    def apply(self, api: Api, body: bytes) -> bytes | None:
        """The body with its schemas in one spelling; None where they are, or it has none."""
        if len(body) > _MOST_BODY_BYTES:
            return None
        text = body
        try:
            for place in _PLACES.get(api, ()):
                text = self._within(text, place) or text
        except UNREADABLE:
            return None
        return None if text is body else text

    def _within(self, text: bytes, place: Sequence[str]) -> bytes | None:
        """An object's text with the schema at `place` spelled; None where nothing changes."""
        name, *inner = place
        if b'"%b"' % name.encode() not in text:
            return None
        fields = fields_of(text)
        value = fields.get(name)
        if value is None:
            return None
        if inner:
            new = self._within(value, inner) if value.startswith(b"{") else None
        else:
            new = self._schema(value)
        return None if new is None else changed(text, fields, {name: new})

    def _schema(self, text: bytes) -> bytes | None:
        """A schema, as an object or as a text that holds one; None where it is spelled so already."""
        if len(text) > _MOST_BYTES or text[:1] not in (b"{", b'"'):
            return None
        known = self._spelled.get(text)
        if known is None:
            known = spell(text)
            self._spelled.put(text, known)
        return None if known == text else known


def spell(text: bytes) -> bytes:
    """A schema in its one spelling; as it is where that can't be told."""
    try:
        schema = json.loads(text)
        if isinstance(schema, str):
            inner = spell(schema.encode())
            return _dumped(inner.decode())
        return _dumped(_ordered(schema, _MOST_LEVELS))
    except (ValueError, RecursionError):
        return text


def _dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _ordered(schema: object, levels: int) -> object:
    """A schema with its keywords in order, at every level where schemas stand."""
    if not isinstance(schema, dict):
        return schema
    if not levels:
        raise RecursionError
    ordered: dict[str, object] = {}
    for keyword in sorted(schema):
        value = schema[keyword]
        if keyword in _BY_NAME and isinstance(value, dict):
            value = {name: _ordered(each, levels - 1) for name, each in value.items()}
        elif keyword in _OF_SCHEMAS and isinstance(value, list):
            value = [_ordered(each, levels - 1) for each in value]
        elif keyword in _OF_SCHEMA:
            value = _ordered(value, levels - 1)
        ordered[keyword] = value
    return ordered
