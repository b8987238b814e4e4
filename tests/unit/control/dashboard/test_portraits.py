"""What requests of a quarantined signature look like."""

import asyncio

import orjson
import pytest

from gateway.control.classifier import build_classifier
from gateway.control.config import parse_config
from gateway.control.dashboard.portraits import Portraits, Prices, title_of
from gateway.hookcost import Classification, Classifier

SMALLEST = "{default_pool: p, pools: {p: {replicas: ['http://127.0.0.1:1']}}}"
CHAT = "/v1/chat/completions"
SCHEMA = {"title": "Trip", "type": "object", "properties": {"id": {"type": "string", "pattern": "^[a-z]{1,400}$"}}}


def body(**fields: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "my secret"}]} | fields)


def formatted(schema: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "plan", "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({}, ""),
        ({"response_format": formatted(SCHEMA)}, "Trip"),
        ({"response_format": formatted({"type": "object"})}, "plan"),
        ({"response_format": formatted({"title": 7})}, "plan"),
        ({"structured_outputs": {"json": orjson.dumps(SCHEMA).decode()}}, "Trip"),
        ({"response_format": formatted({"title": "t" * 500})}, "t" * 120 + "…"),
        ({"ebnf": 'root ::= "x"'}, ""),
    ],
)
def test_the_title_is_that_of_the_schema_through_whichever_door_it_came(fields: dict[str, object], title: str) -> None:
    assert title_of(CHAT, body(**fields)) == title


async def test_a_portrait_has_title_features_and_the_dearest_place_and_nothing_of_the_prompt() -> None:
    classifier = build_classifier(parse_config(SMALLEST))
    portraits = Portraits()
    portraits.prices = lambda: Prices(classifier.model, "xgrammar", None)
    asked = body(response_format=formatted(SCHEMA), max_tokens=5)
    classification = classifier.classify(CHAT, asked)

    portraits.seen(classification, CHAT, asked)
    await asyncio.gather(*portraits._tasks)

    portrait = portraits.of(classification.signature)
    assert portrait is not None
    assert (portrait.title, portrait.features["grammar"]) == ("Trip", "json_schema")
    assert portrait.predicted_us == round(classification.cost.step_us, 1)
    assert portrait.place is not None
    assert portrait.place["pointer"].startswith("/")
    assert b"secret" not in orjson.dumps(portrait)


async def test_one_signature_is_looked_at_once_and_the_eldest_are_forgotten() -> None:
    plain = Classifier().classify(CHAT, body())
    portraits = Portraits()
    for number in range(600):
        portraits.seen(Classification(plain.features, plain.cost, f"s{number}"), CHAT, body())

    assert portraits.of("s0") is None
    assert portraits.of("s599") is not None
