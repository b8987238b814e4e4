"""The sampler: plain text that reads like words, constrained text that satisfies its grammar and ends in time."""

import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from replica.simulator.sampler import JsonPosition, Sampler
from replica.simulator.sampling_params import SamplingParams
from replica.simulator.sequence import Sequence
from replica.simulator.vocabulary import Vocabulary

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name", "age"],
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "children"],
            "additionalProperties": False,
        }
    },
}
SCHEMAS: dict[str, Any] = {
    "any object": {"type": "object"},
    "anything": {},
    "person": PERSON,
    "string": {"type": "string"},
    "short string": {"type": "string", "minLength": 5, "maxLength": 9},
    "long string": {"type": "string", "minLength": 100},
    "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
    "dot pattern": {"type": "string", "pattern": "^.{1,255}$"},
    "integer": {"type": "integer"},
    "bounded integer": {"type": "integer", "minimum": 1990, "maximum": 2030},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "constant": {"const": {"a": [1, None]}},
    "enum": {"enum": ["red", "green", 7, None]},
    "array of numbers": {"type": "array", "items": {"type": "number"}, "minItems": 3},
    "bounded array": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "items": False},
    "union": {"anyOf": [PERSON, {"type": "array", "items": PERSON}]},
    "tree": TREE,
    "date-time": {"type": "string", "format": "date-time"},
    "e-mail": {"type": "string", "format": "email"},
    "uuid": {"type": "string", "format": "uuid"},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "closed": {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False},
    "umlauts": {"type": "object", "properties": {"grüße": {"const": '日本語 " \\ \u2028'}}, "required": ["grüße"]},
    "forty keys": {
        "type": "object",
        "properties": {f"key_{i}": {"type": ["string", "null"]} for i in range(40)},
        "required": [f"key_{i}" for i in range(40)],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("prompt", [1, 2, 3])
def test_json_replies_validate_against_their_schema(generate: Callable[..., str], name: str, prompt: int) -> None:
    schema = SCHEMAS[name]
    value = json.loads(generate("json", schema, prompt=prompt))
    jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", ["any object", "person", "union", "tree", "map", "date-time"])
def test_json_replies_close_well_before_a_usual_token_limit(generate: Callable[..., str], name: str) -> None:
    for prompt in range(20):
        generate("json", SCHEMAS[name], max_new_tokens=128, prompt=prompt)


def test_json_replies_hold_no_free_whitespace(generate: Callable[..., str]) -> None:
    for prompt in range(10):
        text = generate("json", PERSON, prompt=prompt)
        assert text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    "pattern", ["[0-9]{3}-[a-z]+", "(yes|no)", "a*b", r"\d{4}-\d{2}-\d{2}", "[^a-z]{3,5}", "日本|中国"]
)
def test_regex_replies_match(generate: Callable[..., str], pattern: str) -> None:
    assert re.fullmatch(pattern, generate("regex", pattern, max_new_tokens=600))


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ('root ::= "yes" | "no"', "yes|no"),
        ('root ::= item ("," item)*\nitem ::= [a-z]+', "[a-z]+(,[a-z]+)*"),
        ("root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]", "[0-9a-zA-Z.,!?]+([ \\n][0-9a-zA-Z.,!?]+)*"),
    ],
)
def test_ebnf_replies_match(generate: Callable[..., str], grammar: str, pattern: str) -> None:
    assert re.fullmatch(pattern, generate("ebnf", grammar, max_new_tokens=600))


def plain(sampler: Sampler, count: int, prompt: list[int], choice: int = 0, **params: Any) -> list[int]:
    sequence = Sequence("r", prompt, SamplingParams(max_new_tokens=count, **params), None, count)
    sampler.prepare(sequence, choice)
    while len(sequence.output) < count:
        sequence.output.append(sampler.plain(sequence))
    return sequence.output


def test_plain_text_reads_like_words(sampler: Sampler, vocabulary: Vocabulary) -> None:
    text = vocabulary.decode(plain(sampler, 90, [1, 2, 3]))
    assert re.fullmatch(r"[A-Z][a-z]+([,.;]? [a-z]+|[,.;])*", text)


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ({"prompt": [1, 2]}, {"prompt": [1, 2]}, True),
        ({"prompt": [1, 2]}, {"prompt": [2, 1]}, False),
        ({"prompt": [1]}, {"prompt": [1], "choice": 1}, False),
        ({"prompt": [1]}, {"prompt": [1], "seed": 5}, False),
        ({"prompt": [1], "seed": 5}, {"prompt": [1], "seed": 5}, True),
        ({"prompt": [1], "temperature": 0.0}, {"prompt": [1], "temperature": 1.5}, True),
    ],
)
def test_a_reply_depends_on_prompt_seed_and_choice(
    sampler: Sampler, first: dict[str, Any], second: dict[str, Any], equal: bool
) -> None:
    assert (plain(sampler, 30, **first) == plain(sampler, 30, **second)) is equal


def test_a_plain_reply_ends_within_its_natural_bounds_unless_told_not_to(
    sampler: Sampler, vocabulary: Vocabulary
) -> None:
    for prompt in range(20):
        reply = plain(sampler, 400, [prompt])
        assert 96 <= reply.index(vocabulary.eos) <= 384
    assert vocabulary.eos not in plain(sampler, 400, [1], ignore_eos=True)
    assert vocabulary.eos not in plain(sampler, 400, [1], min_new_tokens=400)[:399]


def test_logit_bias_forces_and_forbids_tokens(sampler: Sampler, vocabulary: Vocabulary) -> None:
    token = vocabulary.id_of("hello")
    assert plain(sampler, 5, [1], logit_bias={token: 100.0}) == [token] * 5
    usual = plain(sampler, 1, [1])[0]
    assert plain(sampler, 1, [1], logit_bias={usual: -100.0})[0] != usual


@pytest.mark.parametrize(
    ("tokens", "in_string"),
    [
        ([b'{"'], True),
        ([b'{"', b"a", b'":"'], True),
        ([b'{"', b"a", b'"'], False),
        ([b'"', b"\\", b'"'], True),
        ([b'"', b"\\\\", b'"'], False),
        ([b'"', b'\\"x'], True),
        ([b'"\\', b"\\", b'"'], False),
        ([b'[1,"a","'], True),
    ],
)
def test_the_position_knows_whether_it_is_in_a_string(tokens: list[bytes], in_string: bool) -> None:
    position = JsonPosition()
    for token in tokens:
        position.advance(token)
    assert position.in_string is in_string
