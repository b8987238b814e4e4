"""The same heavy grammar in disguise costs the same: no spelling escapes."""

from typing import Any

import orjson
import pytest

from gateway.hookcost import Classification, Classifier, HookCost
from tests.unit.hookcost.conftest import CHAT, Ask

BOMB: dict[str, Any] = {"type": "string", "pattern": "^.{1,255}$"}
HEAVY = {"type": "object", "properties": {"x": BOMB}, "required": ["x"]}
TEXT = orjson.dumps(HEAVY).decode()


def chain(length: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    definitions[f"d{length}"] = BOMB
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": definitions,
    }


DISGUISES: list[Any] = [
    {"type": "object", "properties": {"x": {"allOf": [BOMB]}}},
    {
        "type": "object",
        "properties": {"x": {"allOf": [{"allOf": [{"anyOf": [BOMB]}]}]}},
    },
    {"type": "object", "properties": {"x": {"anyOf": [BOMB, {"type": "null"}]}}},
    {"type": "object", "properties": {"x": {"oneOf": [BOMB]}}},
    {"type": "object", "properties": {"x": {**BOMB, "type": ["string", "null"]}}},
    {"properties": {"x": BOMB}},
    {"type": "object", "patternProperties": {"^a$": BOMB}},
    {"type": "object", "patternProperties": {"^.{1,255}$": {"type": "integer"}}},
    {"type": "object", "additionalProperties": BOMB},
    {"type": "object", "propertyNames": {"pattern": "^.{1,255}$"}},
    {"type": "array", "items": BOMB},
    {"type": "dict[str, Any]", "properties": {"x": BOMB}},
    {"type": "object", "properties": {"x": {**BOMB, "type": "varchar(255)"}}},
    {"type": "list", "items": {**BOMB, "type": "str"}},
    {"type": "array", "prefixItems": [{"type": "null"}, BOMB]},
    {
        "type": "object",
        "properties": {"x": {"$ref": "#/x-odd/place"}},
        "x-odd": {"place": BOMB},
    },
    {"type": "object", "properties": {"x": {"$ref": "#/properties/y"}, "y": BOMB}},
    {
        "type": "object",
        "properties": {"x": {"$ref": "#/%24defs/a~1b"}},
        "$defs": {"a/b": BOMB},
    },
    {
        "type": "object",
        "properties": {"x": {"$ref": "#/x-list/1"}},
        "x-list": [{}, BOMB],
    },
    {
        "type": "object",
        "properties": {"x": {"$ref": "#bomb"}},
        "$defs": {"y": {"$anchor": "bomb", **BOMB}},
    },
    chain(1),
    chain(40),
]


@pytest.mark.parametrize("schema", DISGUISES, ids=str)
def test_a_dear_pattern_is_found_wherever_the_schema_hides_it(ask: Ask, schema: Any) -> None:
    assert ask.schema(schema).by_backend["xgrammar"].step_us > 20_000


def test_a_reference_chain_beyond_the_bound_is_heavy(ask: Ask) -> None:
    assert ask.schema(chain(200)).cost.heavy is not None


DOORS: list[tuple[str, dict[str, Any]]] = [
    (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": HEAVY},
            }
        },
    ),
    (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": TEXT},
            }
        },
    ),
    (CHAT, {"response_format": {"type": "json_schema", "schema": HEAVY}}),
    (CHAT, {"guided_json": TEXT}),
    (CHAT, {"structured_outputs": {"json": HEAVY}}),
    (CHAT, {"extra_body": {"structured_outputs": {"json": HEAVY}}}),
    (
        CHAT,
        {
            "tools": [{"function": {"name": "f", "parameters": HEAVY}}],
            "tool_choice": "required",
        },
    ),
    (
        CHAT,
        {"tools": [{"function": {"name": "f", "parameters": HEAVY, "strict": True}}]},
    ),
    (
        CHAT,
        {
            "messages": [
                {
                    "role": "system",
                    "tools": [{"function": {"parameters": HEAVY, "strict": True}}],
                }
            ]
        },
    ),
    (
        CHAT,
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<", "schema": HEAVY}],
            }
        },
    ),
    (
        CHAT,
        {
            "response_format": {
                "type": "structural_tag",
                "format": {
                    "type": "sequence",
                    "elements": [{"type": "json_schema", "json_schema": HEAVY}],
                },
            }
        },
    ),
    (
        "/v1/responses",
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": HEAVY}}},
    ),
    ("/v1/messages", {"output_format": {"type": "json_schema", "schema": HEAVY}}),
    (
        "/v1/messages",
        {
            "tools": [{"name": "f", "input_schema": HEAVY}],
            "tool_choice": {"type": "any"},
        },
    ),
    ("/generate", {"text": "x", "sampling_params": {"json_schema": TEXT}}),
    ("/generate", {"text": ["x", "y"], "sampling_params": [{}, {"json_schema": TEXT}]}),
    ("/v1/chat/completion%73/?a=b", {"guided_json": HEAVY}),
]


@pytest.mark.parametrize(("path", "body"), DOORS)
def test_a_dear_schema_costs_the_same_through_every_door(
    classifier: Classifier, path: str, body: dict[str, Any]
) -> None:
    seen = classifier.classify(path, orjson.dumps(body))
    assert seen.refusal is None
    assert seen.by_backend["xgrammar"].step_us > 20_000


@pytest.mark.parametrize(
    "body",
    [
        rb'{"messages": [], "guided_json": {"type": "string", "\u0070attern": "^.{1,255}$"}}',
        rb'{"messages": [], "guided_js\u006fn": {"type": "string", "pattern": "\u005e.{1,255}$"}}',
        rb'{"messages": [], "guided_json": {}, "guided_json": {"type": "string", "pattern": "^.{1,255}$"}}',
        rb'{"messages": [], "guided_json": {"type": "string", "pattern": "x", "pattern": "^.{1,255}$"}}',
        rb'{"messages": [], "guided_json": "{\"type\": \"string\", \"pattern\": \"^.{1,255}$\"}"}',
        rb'{"messages":[],' + b" " * 200_000 + rb'"guided_json":{"type":"string","pattern":"^.{1,255}$"}}',
    ],
)
def test_spelling_in_json_hides_nothing_in_one_go_or_in_turns(classifier: Classifier, body: bytes) -> None:
    assert classifier.classify(CHAT, body).by_backend["xgrammar"].step_us > 20_000
    assert in_turns(classifier, body).step_us > 20_000


def in_turns(classifier: Classifier, body: bytes) -> HookCost:
    turns = classifier.begin(CHAT, body)
    while not isinstance(turns, Classification):
        try:
            next(turns)
        except StopIteration as done:
            turns = done.value
    return turns.by_backend["xgrammar"]


def test_what_the_backend_ignores_costs_nothing(ask: Ask) -> None:
    plain = {"type": "object", "properties": {"x": {"type": "string"}}}
    decorated = {
        **plain,
        "not": {"type": "object", "properties": {"y": BOMB}},
        "if": BOMB,
        "$defs": {"unused": BOMB},
        "description": "^.{1,255}$",
    }
    one, other = (
        ask.schema(plain).by_backend["xgrammar"],
        ask.schema(decorated).by_backend["xgrammar"],
    )
    assert (one.step_us, one.compile_ms) == (other.step_us, other.compile_ms)
    several = {
        "type": "object",
        "properties": {"x": {"allOf": [BOMB, {"type": "string"}]}},
    }
    assert ask.schema(several).by_backend["xgrammar"].step_us < 1000
