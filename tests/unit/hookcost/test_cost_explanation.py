"""What a user sees of a prediction: what each feature adds, and where in the schema the cost is."""

from typing import Any

import orjson
import pytest

from gateway.hookcost import Classifier
from gateway.hookcost.explain import ADVICE, CostExplanation, explain_in_turns
from gateway.hookcost.prices import CostModel
from gateway.hookcost.turns import at_once
from tests.unit.hookcost.conftest import CHAT

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^.{1,255}$"},
        "meta": {"type": "object", "properties": {"alpha": {}, "beta": {}}, "additionalProperties": True},
        "a/b~c": {"type": "string", "format": "uri"},
        "plain": {"type": "integer"},
        "ref": {"$ref": "#/$defs/mail"},
    },
    "$defs": {"mail": {"type": "string", "format": "email"}},
}


def explain(model: CostModel, path: str, body: bytes, backend: str = "xgrammar") -> CostExplanation:
    return at_once(explain_in_turns(model, path, body, backend))


def explained(model: CostModel, backend: str = "xgrammar", **body: Any) -> CostExplanation:
    return explain(model, CHAT, orjson.dumps({"messages": [], **body}), backend)


def test_the_three_dearest_places_are_named_with_advice(model: CostModel) -> None:
    found = explained(model, guided_json=SCHEMA)
    assert [(place.pointer, place.mechanism) for place in found.places] == [
        ("/properties/id", "counted_class"),
        ("/properties/meta", "open_object_names"),
        ("/$defs/mail", "format_email"),
    ]
    assert all(place.param == "guided_json" and place.advice for place in found.places)
    assert found.places[0].step_us > 20_000


def test_a_pointer_is_escaped_as_rfc_6901_says(model: CostModel) -> None:
    schema = {"type": "object", "properties": {"a/b~c": {"type": "string", "format": "uri"}}}
    assert explained(model, guided_json=schema).places[0].pointer == "/properties/a~1b~0c"


def test_what_stands_behind_a_reference_is_named_where_it_stands(model: CostModel) -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/%24defs/a~1b/properties/c"}},
        "$defs": {"a/b": {"properties": {"c": {"type": "array", "items": {"type": "string", "format": "uri"}}}}},
    }
    assert explained(model, guided_json=schema).places[0].pointer == "/$defs/a~1b/properties/c/items"
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    found = explained(model, tools=[tool], tool_choice="required")
    assert found.places[0].pointer == "/tools/0/$defs/a~1b/properties/c/items"


@pytest.mark.parametrize(
    "body",
    [
        {"guided_json": SCHEMA, "logprobs": True, "top_logprobs": 5, "stop": ["x"], "n": 3},
        {"guided_json": SCHEMA, "guided_regex": "[a-z]{3}", "guided_choice": ["a", "b"], "stop": "x", "logprobs": True},
    ],
    ids=["one grammar", "several"],
)
def test_the_contributions_add_up_to_the_prediction(
    model: CostModel, classifier: Classifier, body: dict[str, Any]
) -> None:
    body = {"messages": [], **body}
    cost = classifier.classify(CHAT, orjson.dumps(body)).by_backend["xgrammar"]
    found = explain(model, CHAT, orjson.dumps(body))
    assert sum(each.step_us for each in found.contributions) == pytest.approx(cost.step_us)
    assert sum(each.compile_ms for each in found.contributions) == pytest.approx(cost.compile_ms)
    assert {"logprobs", "stop", "grammar"} == {each.hook for each in found.contributions}
    assert found.contributions[0].name == "counted_class"


def test_tools_are_told_apart(model: CostModel) -> None:
    tools = [{"function": {"name": name, "parameters": SCHEMA if name == "b" else {"type": "object"}}} for name in "ab"]
    place = explained(model, tools=tools, tool_choice="required").places[0]
    assert (place.param, place.pointer) == ("tools", "/tools/1/properties/id")


def test_a_broken_body_or_a_plain_one_has_nothing_to_explain(model: CostModel) -> None:
    assert explain(model, CHAT, b"{").contributions == ()
    assert explained(model).contributions == ()
    assert explained(model, n="x").contributions == ()
    assert explain(model, "/v1/models", b"").places == ()


def test_every_mechanism_that_costs_in_one_place_has_advice(model: CostModel) -> None:
    told = set(ADVICE)
    untold = {"text", "anything", "objects", "arrays", "properties", "numbers", "bounded_numbers", "multiples"}
    untold |= {"pattern_literals", "ebnf_rules", "raw_regex", "wide_loop"}
    for backend, version in [*((name, None) for name in model.backends), ("xgrammar", "0.1.0")]:
        prices = model.backend(backend, version)
        for mechanism in {*prices.compile_ms, *prices.step_us}:
            assert mechanism in told or mechanism in untold or mechanism.startswith("format_"), mechanism
