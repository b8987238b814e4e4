"""Structured output: JSON schema, JSON object, regex and EBNF, streaming and not; what comes back fits its grammar."""

import json
import re
from typing import Any, Literal

import jsonschema
from openai.types.chat import ChatCompletionMessageParam
from openai.types.shared_params import ResponseFormatJSONSchema
from pydantic import BaseModel

from tests.clients.case import MODEL, CaseTable, Client

CASES = CaseTable()
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Describe the weather as data."}]
# Whatever a random model prefers, these end by themselves.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sky": {"enum": ["clear", "cloudy", "storm"]},
        "windy": {"type": "boolean"},
        "scale": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 3},
    },
    "required": ["sky", "windy", "scale"],
    "additionalProperties": False,
}
FORMAT: ResponseFormatJSONSchema = {
    "type": "json_schema",
    "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True},
}
TOKENS = 64


class Weather(BaseModel):
    sky: Literal["clear", "cloudy", "storm"]
    windy: bool


@CASES.case("a JSON schema")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, response_format=FORMAT
    )
    assert reply.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(reply.choices[0].message.content or ""), SCHEMA)


@CASES.case("a JSON schema as a stream")
def _(client: Client) -> None:
    with client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, response_format=FORMAT, stream=True
    ) as stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    jsonschema.validate(json.loads(text), SCHEMA)


@CASES.case("a pydantic model parsed by the client")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.parse(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, response_format=Weather
    )
    assert isinstance(reply.choices[0].message.parsed, Weather)


@CASES.case("a pydantic model through the client's stream helper")
def _(client: Client) -> None:
    with client.openai.chat.completions.stream(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, response_format=Weather
    ) as stream:
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Weather)


@CASES.case("any JSON object")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=12, temperature=0, response_format={"type": "json_object"}
    )
    assert (reply.choices[0].message.content or "").startswith("{")


@CASES.case("a regex")
def _(client: Client) -> None:
    pattern = r"(north|south)-[0-9]{2}"
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, extra_body={"regex": pattern}
    )
    assert re.fullmatch(pattern, reply.choices[0].message.content or "")


@CASES.case("a regex as a stream")
def _(client: Client) -> None:
    pattern = r"[ab]{6}"
    with client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, stream=True, extra_body={"regex": pattern}
    ) as stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert re.fullmatch(pattern, text)


@CASES.case("an EBNF grammar")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL,
        messages=ASK,
        max_tokens=TOKENS,
        temperature=0,
        extra_body={"ebnf": 'root ::= greeting " " name\ngreeting ::= "hello" | "bye"\nname ::= "sea" | "sky"'},
    )
    assert reply.choices[0].message.content in {"hello sea", "hello sky", "bye sea", "bye sky"}


@CASES.case("two choices of one JSON schema")
def _(client: Client) -> None:
    reply = client.openai.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=TOKENS, temperature=0, response_format=FORMAT, n=2
    )
    for choice in reply.choices:
        jsonschema.validate(json.loads(choice.message.content or ""), SCHEMA)
