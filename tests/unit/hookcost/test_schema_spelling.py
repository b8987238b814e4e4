import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost import Api
from gateway.hookcost.schemaspelling import SchemaSpelling, spell

SCHEMA = '{"type": "object", "required": ["b"],  "properties": {"b": {"type": "string", "maxLength": 5}, "a": {}}}'
SPELLED = '{"properties":{"b":{"maxLength":5,"type":"string"},"a":{}},"required":["b"],"type":"object"}'


@pytest.mark.parametrize(
    ("schema", "spelled"),
    [
        (SCHEMA, SPELLED),
        (SPELLED, SPELLED),
        ("true", "true"),
        ('{"enum": [{"z": 1, "a": 2}, 1.50]}', '{"enum":[{"z":1,"a":2},1.5]}'),
        ('{"const": {"z": 1, "a": 2}}', '{"const":{"z":1,"a":2}}'),
        ('{"default": {"type": 1, "items": {"z": 1, "a": 1}}}', '{"default":{"type":1,"items":{"z":1,"a":1}}}'),
        ('{"x-mine": {"z": 1, "a": 2}}', '{"x-mine":{"z":1,"a":2}}'),
        ('{"items": [{"type": "a", "enum": []}]}', '{"items":[{"enum":[],"type":"a"}]}'),
        ('{"items": {"type": "a", "enum": []}}', '{"items":{"enum":[],"type":"a"}}'),
        ('{"$defs": {"z": {"type": 1, "not": {}}, "a": {}}}', '{"$defs":{"z":{"not":{},"type":1},"a":{}}}'),
        ('{"properties": {"type": {"type": "x", "enum": []}}}', '{"properties":{"type":{"enum":[],"type":"x"}}}'),
        ('{"maximum": 123456789012345678901234567890}', '{"maximum":123456789012345678901234567890}'),
        ('{"pattern": "\\u00e9\\\\d"}', '{"pattern":"é\\\\d"}'),
        ('{"type": ', '{"type": '),
    ],
)
def test_a_schema_has_one_spelling(schema: str, spelled: str) -> None:
    assert spell(schema.encode()).decode() == spelled


def test_a_schema_as_a_text_stays_a_text() -> None:
    assert json.loads(spell(json.dumps(SCHEMA).encode())) == SPELLED


KEYWORDS = ["type", "properties", "items", "anyOf", "enum", "$defs", "required", "x"]
SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=5),
    max_leaves=20,
)


@given(SCHEMAS)
def test_nothing_but_order_and_space_changes(schema: Any) -> None:
    text = spell(json.dumps(schema).encode())
    if isinstance(schema, str):
        return
    assert json.loads(text) == schema
    assert spell(text) == text


def orders_of_properties(schema: Any) -> list[list[str]]:
    if isinstance(schema, list):
        return [each for inner in schema for each in orders_of_properties(inner)]
    if not isinstance(schema, dict):
        return []
    mine = [list(schema["properties"])] if isinstance(schema.get("properties"), dict) else []
    return mine + [each for key in sorted(schema) for each in orders_of_properties(schema[key])]


@given(SCHEMAS)
def test_the_order_of_properties_stays(schema: Any) -> None:
    if not isinstance(schema, str):
        assert orders_of_properties(json.loads(spell(json.dumps(schema).encode()))) == orders_of_properties(schema)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.chat, '{"messages" : [1.0],\n"response_format":{"type":"json_schema","json_schema":{"schema":  %s }} }'),
        (Api.chat, '{"guided_json": %s, "z":[ ]}'),
        (Api.chat, '{ "structured_outputs" : {"json":%s}, "temperature":1e0}'),
        (Api.completions, '{"prompt":"\\u0041","response_format":{"json_schema":{"schema":%s}}}'),
        (Api.responses, '{"text": {"format" :{"type":"json_schema","schema":%s}}}'),
        (Api.messages, '{"output_config":{"format":{"schema":%s}}}'),
        (Api.generate, '{"sampling_params": {"n": 1 ,"json_schema" :%s}}'),
    ],
)
def test_only_the_schema_changes_in_a_body(api: Api, body: str) -> None:
    spelling = SchemaSpelling()
    for _ in range(2):
        assert spelling.apply(api, (body % SCHEMA).encode()) == (body % SPELLED).encode()
    assert spelling.apply(api, (body % SPELLED).encode()) is None


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (Api.chat, '{"messages": []}'),
        (Api.chat, f'{{"tools": [{{"function": {{"parameters": {SCHEMA}}}}}]}}'),
        (Api.chat, '{"response_format": {"type": "json_object"}}'),
        (Api.chat, '{"response_format": {"json_schema": {"schema": null}}}'),
        (Api.chat, '{"response_format": "text"}'),
        (Api.chat, f'{{"response_format": {{"json_schema": {{"schema": {SCHEMA}}}'),
        (Api.other, f'{{"guided_json": {SCHEMA}}}'),
        (Api.chat, '{"guided_json": {"description": "%s"}}' % ("x" * 40_000)),
        (Api.chat, f'{{"messages": ["{"x" * (1 << 20)}"], "guided_json": {SCHEMA}}}'),
    ],
)
def test_what_has_no_schema_to_spell_is_left_alone(api: Api, body: str) -> None:
    assert SchemaSpelling().apply(api, body.encode()) is None
