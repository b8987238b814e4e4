"""The least request that has an engine compile a grammar: the same grammar, one token, and nothing of the prompt."""

import json
from typing import Any

import pytest

from gateway.hookcost import Classifier
from gateway.hookcost.grammarbody import grammar_body
from gateway.hookcost.paths import api_of

SCHEMA = {"type": "object", "properties": {"secretly": {"type": "string"}}, "required": ["secretly"]}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
PROMPT = "the prompt that nobody may keep"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, GENERATE, TOKENS = "/v1/messages", "/generate", "/inference/v1/generate"

PROMPTS: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 500, "user": "u"},
    COMPLETIONS: {"model": "m", "prompt": PROMPT, "n": 3},
    RESPONSES: {"model": "m", "input": PROMPT, "instructions": PROMPT, "max_output_tokens": 9},
    MESSAGES: {"model": "m", "max_tokens": 500, "system": PROMPT, "messages": [{"role": "user", "content": PROMPT}]},
    GENERATE: {"text": PROMPT},
    TOKENS: {"token_ids": [1, 2, 3]},
}
LIMITS = {CHAT: "max_tokens", COMPLETIONS: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}


@pytest.mark.parametrize(
    ("path", "engine", "fields"),
    [
        (CHAT, "sglang", {"response_format": FORMAT}),
        (CHAT, "vllm", {"response_format": FORMAT, "stream": True, "logprobs": True, "top_logprobs": 5}),
        (CHAT, "sglang", {"response_format": {"type": "json_object"}}),
        (CHAT, "sglang", {"response_format": TAG}),
        (CHAT, "sglang", {"regex": "a+b"}),
        (CHAT, "sglang", {"ebnf": 'root ::= "a"', "regex": None}),
        (CHAT, "vllm", {"structured_outputs": {"choice": ["yes", "no"], "disable_any_whitespace": True}}),
        (CHAT, "vllm", {"guided_json": SCHEMA}),
        (CHAT, "vllm", {"extra_body": {"guided_grammar": 'root ::= "a"', "user": PROMPT}}),
        (CHAT, "sglang", {"tools": [TOOL], "tool_choice": "required"}),
        (CHAT, "sglang", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (COMPLETIONS, "sglang", {"json_schema": json.dumps(SCHEMA, indent=3)}),
        (COMPLETIONS, "sglang", {"response_format": FORMAT}),
        (RESPONSES, "vllm", {"text": {"format": {"type": "json_schema", "schema": SCHEMA}, "verbosity": 1}}),
        (MESSAGES, "sglang", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}}),
        (MESSAGES, "sglang", {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}),
        (GENERATE, "sglang", {"sampling_params": {"json_schema": json.dumps(SCHEMA), "max_new_tokens": 500}}),
        (GENERATE, "sglang", {"sampling_params": {"regex": "a+", "stop": [PROMPT]}}),
        (TOKENS, "vllm", {"sampling_params": {"structured_outputs": {"regex": "a+"}, "max_tokens": 7}}),
    ],
)
def test_it_asks_for_one_token_under_the_same_grammar_and_holds_no_prompt(
    path: str, engine: str, fields: dict[str, Any]
) -> None:
    body = json.dumps({**PROMPTS[path], **fields}).encode()
    least = grammar_body(api_of(path), engine, body)
    assert least is not None
    classifier = Classifier()
    wanted, found = classifier.classify(path, body), classifier.classify(path, least)
    assert wanted.refusal is found.refusal is None
    assert found.grammar_key == wanted.grammar_key != ""
    assert (found.features.max_tokens, found.features.n, found.features.stream) == (1, 1, False)
    assert not found.features.logprobs
    assert found.features.model == wanted.features.model
    assert PROMPT not in least.decode()
    document = json.loads(least)
    inner = document["sampling_params"] if path in (GENERATE, TOKENS) else document
    limit = LIMITS.get(path, "max_tokens" if engine == "vllm" else "max_new_tokens")
    assert inner[limit] == 1


def test_what_holds_the_grammar_stays_byte_for_byte() -> None:
    schema = b'{ "type" :"object",\n "properties":{"\\u00e9": {}, "b":{ "maximum": 1.50 }} }'
    body = b'{"model":"m","messages":[],"response_format": {"type":"json_schema","json_schema":{"schema":%b}}}' % schema
    least = grammar_body(api_of(CHAT), "sglang", body)
    assert least is not None
    assert schema in least


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, PROMPTS[CHAT]),
        (CHAT, {**PROMPTS[CHAT], "response_format": None}),
        (CHAT, {**PROMPTS[CHAT], "extra_body": {"user": "u"}}),
        (CHAT, {**PROMPTS[CHAT], "extra_body": ["guided_json"]}),
        (CHAT, ["no object"]),
        (GENERATE, {"text": [PROMPT, PROMPT], "sampling_params": [{"regex": "a"}, {"regex": "b"}]}),
        (GENERATE, {"text": PROMPT, "sampling_params": {"temperature": 0}}),
        ("/v1/embeddings", {"input": PROMPT, "regex": "a"}),
    ],
)
def test_where_no_grammar_can_be_taken_alone_there_is_none(path: str, body: object) -> None:
    assert grammar_body(api_of(path), "sglang", json.dumps(body).encode()) is None
