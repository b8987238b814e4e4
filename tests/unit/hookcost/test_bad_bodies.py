"""Bodies that are broken, hostile or merely odd: never an exception, and a refusal says what was wrong and where."""

import json
from typing import Any

import orjson
import pytest

from gateway.hookcost import Api, Grammar, Refusal, classify

CHAT = "/v1/chat/completions"


def refusal_of(path: str, body: bytes) -> Refusal:
    found = classify(path, body).refusal
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b'{"model": "m", "messages": [', "not valid JSON"),
        (b'{"model": "m"', "line 1, column 14"),
        (b'{"a": 1}\n{"b": 2}', "line 2, column 1"),
        (b"[1, 2]", "must be a JSON object, but is an array"),
        (b'"text"', "must be a JSON object, but is a string"),
        (b"null", "must be a JSON object, but is null"),
        (b"true", "must be a JSON object, but is a boolean"),
        (b"17", "must be a JSON object, but is a number"),
        (b"[" * 100_000, "1,024 levels"),
        (b'{"a":' * 100_000, "1,024 levels"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "1,024 levels"),
        (b'{"a": "x\x00y"}', "control character"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\xff"}', "not valid UTF-8 at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "byte order mark"),
        ('{"a": 1}'.encode("utf-16-le"), "UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b'{"a": NaN}', "not valid JSON"),
        (b"\x00\x01\x02\x03", "UTF-32"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_with_the_reason(body: bytes, says: str) -> None:
    refusal = refusal_of(CHAT, body)
    assert refusal.status == 400
    assert refusal.code == "invalid_json"
    assert says in refusal.message


WRONG: list[tuple[str, object]] = [
    ("model", 5),
    ("stream", "perhaps"),
    ("n", "many"),
    ("n", 1.5),
    ("n", [1]),
    ("n", "9" * 5000),
    ("best_of", {}),
    ("max_tokens", "lots"),
    ("max_tokens", [16]),
    ("max_tokens", 16.5),
    ("max_completion_tokens", {}),
    ("top_k", "all"),
    ("logprobs", "perhaps"),
    ("logprobs", []),
    ("top_logprobs", "x"),
    ("prompt_logprobs", {}),
    ("logprob_token_ids", "5"),
    ("stop", 5),
    ("stop", [1]),
    ("stop", {}),
    ("stop_token_ids", "x"),
    ("stop_token_ids", ["x"]),
    ("stop_regex", [{}]),
    ("logit_bias", []),
    ("logit_bias", {"x": 1}),
    ("logit_bias", {"5": "x"}),
    ("allowed_token_ids", {}),
    ("bad_words", 5),
    ("frequency_penalty", "x"),
    ("presence_penalty", []),
    ("repetition_penalty", {}),
    ("min_tokens", "x"),
    ("custom_logit_processor", 5),
    ("return_hidden_states", "first"),
    ("response_format", "json"),
    ("response_format", []),
    ("response_format", {"type": 5}),
    ("response_format", {"type": "json_schema"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": 5}},
    ),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": "{"}},
    ),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": '"\\"text\\""'}},
    ),
    ("json_schema", "{"),
    ("json_schema", []),
    ("regex", 5),
    ("regex", ["a"]),
    ("ebnf", {}),
    ("structural_tag", 5),
    ("structural_tag", "{"),
    ("structured_outputs", "x"),
    ("structured_outputs", {"json": 5}),
    ("structured_outputs", {"regex": 5}),
    ("structured_outputs", {"choice": "yes"}),
    ("structured_outputs", {"choice": [5]}),
    ("structured_outputs", {"grammar": []}),
    ("structured_outputs", {"json_object": "perhaps"}),
    ("guided_json", 5),
    ("guided_choice", "yes"),
    ("tools", {}),
    ("tools", ["x"]),
    ("tools", [None]),
    ("tools", [{"type": "function", "function": 5}]),
    ("tools", [{"type": "function", "function": {"name": "f", "strict": "perhaps"}}]),
    (
        "tools",
        [
            {
                "type": "function",
                "function": {"name": "f", "strict": True, "parameters": 5},
            }
        ],
    ),
    ("rid", 5),
    ("rid", [5]),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_recognised_field_of_a_wrong_type_is_refused_and_named(field: str, value: object) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], field: value}
    refusal = refusal_of(CHAT, orjson.dumps(body))
    assert refusal.status == 400
    assert refusal.code == "invalid_value"
    assert refusal.param is not None
    assert refusal.param.startswith(field)
    assert f"`{refusal.param}` must be" in refusal.message


def test_a_tool_choice_of_a_wrong_type_is_refused() -> None:
    body = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": 5,
    }
    assert refusal_of(CHAT, orjson.dumps(body)).param == "tool_choice"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/generate", {"sampling_params": 5}, "sampling_params"),
        ("/generate", {"sampling_params": [5]}, "sampling_params[0]"),
        ("/generate", {"sampling_params": {"n": "x"}}, "sampling_params.n"),
        ("/generate", {"sampling_params": [{}, {"n": []}]}, "sampling_params[1].n"),
        ("/generate", {"return_logprob": "perhaps"}, "return_logprob"),
        ("/generate", {"logprob_start_len": "x"}, "logprob_start_len"),
        ("/generate", {"top_logprobs_num": ["x"]}, "top_logprobs_num[0]"),
        ("/generate", {"token_ids_logprob": [["x"]]}, "token_ids_logprob[0][0]"),
        ("/v1/responses", {"text": "x"}, "text"),
        ("/v1/responses", {"text": {"format": 5}}, "text.format"),
        ("/v1/responses", {"include": 5}, "include"),
        ("/v1/messages", {"output_config": 5}, "output_config"),
        ("/v1/messages", {"stop_sequences": [5]}, "stop_sequences[0]"),
        ("/vertex_generate", {"instances": 5}, "instances"),
    ],
)
def test_each_dialect_names_the_field_that_is_wrong(path: str, body: dict[str, Any], param: str) -> None:
    assert refusal_of(path, orjson.dumps(body)).param == param


@pytest.mark.parametrize(
    "body",
    [
        {"messages": 5},
        {"messages": "text"},
        {"messages": [5, None, {"content": 5}]},
        {"messages": [], "temperature": "hot"},
        {"messages": [], "metadata": [], "user": 5, "seed": {}},
        {"messages": [], "unknown": {"regex": "(a+)+b"}},
        {},
    ],
)
def test_a_wrong_type_that_costs_nothing_is_left_to_the_engine(
    body: dict[str, Any],
) -> None:
    seen = classify(CHAT, orjson.dumps(body))
    assert seen.refusal is None
    assert seen.features.grammar is Grammar.none
    assert seen.cost.step_us == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"n": "4"}, {"n": 4}),
        ({"n": 4.0}, {"n": 4}),
        ({"n": True}, {"n": 1}),
        ({"top_k": "50"}, {"top_k": 50}),
        (
            {"logprobs": "true", "top_logprobs": "5"},
            {"logprobs": True, "top_logprobs": 5},
        ),
        ({"logprobs": 1, "top_logprobs": 5}, {"logprobs": True, "top_logprobs": 5}),
        ({"stream": "yes"}, {"stream": True}),
        (
            {
                "n": None,
                "top_k": None,
                "stop": None,
                "logprobs": None,
                "tools": None,
                "response_format": None,
            },
            {"n": 1},
        ),
        ({"logit_bias": {" 5 ": "1.5"}}, {"logit_bias": 1}),
    ],
)
def test_loose_types_that_the_engines_accept_are_understood(body: dict[str, Any], expected: dict[str, Any]) -> None:
    features = classify(CHAT, orjson.dumps({"messages": [], **body})).features
    assert {name: getattr(features, name) for name in expected} == expected


def test_of_duplicate_keys_the_last_counts_as_it_does_for_the_engine() -> None:
    body = b'{"messages": [], "regex": "(a+)+b", "regex": null, "n": 1, "n": 7}'
    features = classify(CHAT, body).features
    assert features.n == json.loads(body)["n"] == 7
    assert features.grammar is Grammar.none
    hidden = b'{"messages": [], "regex": null, "regex": "(a+)+b"}'
    assert classify(CHAT, hidden).features.grammar is Grammar.regex


def test_json_escapes_hide_nothing() -> None:
    body = rb'{"messages": [], "\u0072\u0065gex": "a{1,5}"}'
    assert classify(CHAT, body).features.grammar is Grammar.regex


@pytest.mark.parametrize("depth", [100, 300, 1000])
def test_a_schema_nested_deeper_than_any_engine_wants_is_heavy_not_an_error(
    depth: int,
) -> None:
    schema = b'{"items":' * depth + b"{}" + b"}" * depth
    body = b'{"messages": [], "response_format": {"type": "json_schema", "schema": ' + schema + b"}}"
    seen = classify(CHAT, body)
    assert seen.refusal is not None or seen.cost.heavy is not None or depth <= 100


def test_a_huge_grammar_is_heavy_by_definition() -> None:
    schema = orjson.dumps({"enum": ["x" * 50] * 10_000})
    as_object = b'{"messages": [], "response_format": {"type": "json_schema", "schema": ' + schema + b"}}"
    as_text = orjson.dumps({"messages": [], "json_schema": schema.decode()})
    for body in (as_object, as_text):
        seen = classify(CHAT, body)
        assert seen.refusal is None
        assert seen.cost.heavy is not None
        assert "256 KiB" in seen.cost.heavy


def test_a_huge_plain_body_is_plain() -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": "x" * (8 << 20)}]})
    seen = classify(CHAT, body)
    assert seen.refusal is None
    assert seen.cost.heavy is None
    assert seen.features.prompt_bytes == 8 << 20


def test_other_paths_are_passed_through_unread() -> None:
    seen = classify("/v1/embeddings", b"\xff\x00 not json")
    assert seen.refusal is None
    assert seen.features.api is Api.other
    assert seen.cost.step_us == 0
