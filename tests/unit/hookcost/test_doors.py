"""Every door through which a request can bring a grammar or another hook, in every dialect and spelling."""

from typing import Any

import orjson
import pytest

from gateway.hookcost import Classification, Classifier, Grammar
from gateway.hookcost.policy import policy_from
from gateway.hookcost.sampling import SAMPLING_KEYS

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TEXT = orjson.dumps(SCHEMA).decode()
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
STRICT = {
    "type": "function",
    "function": {"name": "f", "parameters": SCHEMA, "strict": True},
}
NAMED = {"type": "function", "function": {"name": "f"}}
CHAT, COMPLETIONS, RESPONSES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
)
MESSAGES, GENERATE = "/v1/messages", "/generate"
LENIENT = Classifier(policy=policy_from({"max_top_logprobs": 1 << 20}))


def see(path: str, body: dict[str, Any]) -> Classification:
    seen = LENIENT.classify(path, orjson.dumps(body))
    assert seen.refusal is None, seen.refusal
    return seen


GRAMMARS: list[tuple[str, dict[str, Any], Grammar]] = [
    (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": SCHEMA},
            }
        },
        "json_schema",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        "json_schema",
    ),
    (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"schema": TEXT}}},
        "json_schema",
    ),
    (CHAT, {"response_format": {"type": "json_object"}}, "json_object"),
    (CHAT, {"response_format": {"type": "text"}}, "none"),
    (CHAT, {"response_format": TAG}, "structural_tag"),
    (
        CHAT,
        {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
        "structural_tag",
    ),
    (CHAT, {"regex": "a+"}, "regex"),
    (CHAT, {"regex": ""}, "none"),
    (CHAT, {"ebnf": 'root ::= "a"'}, "ebnf"),
    (CHAT, {"json_schema": TEXT}, "json_schema"),
    (CHAT, {"json_schema": SCHEMA}, "json_schema"),
    (CHAT, {"json_schema": "$$ANY$$"}, "json_object"),
    (CHAT, {"tools": [TOOL]}, "none"),
    (CHAT, {"tools": [TOOL], "tool_choice": "auto"}, "none"),
    (CHAT, {"tools": [TOOL], "tool_choice": "none"}, "none"),
    (CHAT, {"tools": [STRICT], "tool_choice": "none"}, "none"),
    (CHAT, {"tools": [TOOL], "tool_choice": "required"}, "tools"),
    (CHAT, {"tools": [TOOL], "tool_choice": NAMED}, "tools"),
    (CHAT, {"tools": [STRICT]}, "tools"),
    (CHAT, {"tools": [TOOL, STRICT], "tool_choice": "auto"}, "tools"),
    (
        CHAT,
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "required"}},
        "tools",
    ),
    (
        CHAT,
        {"messages": [{"role": "system", "content": "x", "tools": [STRICT]}]},
        "tools",
    ),
    (CHAT, {"structured_outputs": {"json": SCHEMA}}, "json_schema"),
    (CHAT, {"structured_outputs": {"json": TEXT}}, "json_schema"),
    (CHAT, {"structured_outputs": {"regex": "a+"}}, "regex"),
    (CHAT, {"structured_outputs": {"choice": ["yes", "no"]}}, "choice"),
    (CHAT, {"structured_outputs": {"grammar": 'root ::= "a"'}}, "ebnf"),
    (CHAT, {"structured_outputs": {"json_object": True}}, "json_object"),
    (
        CHAT,
        {"structured_outputs": {"structural_tag": orjson.dumps(TAG).decode()}},
        "structural_tag",
    ),
    (CHAT, {"guided_json": SCHEMA}, "json_schema"),
    (CHAT, {"guided_regex": "a+"}, "regex"),
    (CHAT, {"guided_choice": ["yes", "no"]}, "choice"),
    (CHAT, {"guided_grammar": 'root ::= "a"'}, "ebnf"),
    (CHAT, {"guided_json_object": True}, "json_object"),
    (CHAT, {"response_format": {"type": "regex", "pattern": "a+"}}, "regex"),
    (CHAT, {"response_format": {"type": "grammar", "grammar": 'root ::= "a"'}}, "ebnf"),
    (CHAT, {"structural_tag": orjson.dumps(TAG).decode()}, "structural_tag"),
    (CHAT, {"guided_json": None, "guided_regex": "", "guided_choice": None, "structured_outputs": None}, "none"),
    (CHAT, {"structured_outputs": {"json": None, "regex": "a+"}}, "regex"),
    ("/cohere/v2/chat", {"response_format": {"type": "json_object", "json_schema": SCHEMA}}, "json_schema"),
    ("/cohere/v2/chat", {"tools": [TOOL], "strict_tools": True}, "tools"),
    ("/cohere/v2/chat", {"tools": [TOOL], "tool_choice": "REQUIRED"}, "tools"),
    (CHAT, {"extra_body": {"regex": "a+"}}, "regex"),
    (CHAT, {"extra_body": {"regex": "a+"}, "regex": None}, "regex"),
    (CHAT, {"extra_body": {"regex": "a+"}, "response_format": {"type": "json_object"}}, "regex"),
    (CHAT, {"extra_body": {"response_format": TAG}, "response_format": {"type": "json_object"}}, "structural_tag"),
    (CHAT, {"extra_body": {"tools": [STRICT]}}, "tools"),
    (CHAT, {"extra_body": {"response_format": {"type": "json_object"}}}, "json_object"),
    (COMPLETIONS, {"prompt": "x", "regex": "a+"}, "regex"),
    (COMPLETIONS, {"prompt": "x", "json_schema": TEXT}, "json_schema"),
    (
        COMPLETIONS,
        {"prompt": "x", "response_format": {"type": "json_object"}},
        "json_object",
    ),
    (
        RESPONSES,
        {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}},
        "json_schema",
    ),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}}, "json_object"),
    (RESPONSES, {"text": {"format": {"type": "text"}}}, "none"),
    (
        RESPONSES,
        {"tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}]},
        "tools",
    ),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": "required"}, "none"),
    (
        RESPONSES,
        {
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
            "tool_choice": {"type": "function", "name": "f"},
        },
        "tools",
    ),
    (RESPONSES, {"structured_outputs": {"regex": "a+"}}, "regex"),
    (MESSAGES, {"tools": [{"name": "f", "input_schema": SCHEMA}]}, "none"),
    (
        MESSAGES,
        {
            "tools": [{"name": "f", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
        },
        "tools",
    ),
    (
        MESSAGES,
        {
            "tools": [{"name": "f", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "f"},
        },
        "tools",
    ),
    (
        MESSAGES,
        {"tools": [{"name": "f", "input_schema": SCHEMA, "strict": True}]},
        "tools",
    ),
    (
        MESSAGES,
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        "json_schema",
    ),
    (
        MESSAGES,
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "json_schema",
    ),
    (GENERATE, {"text": "x", "sampling_params": {"json_schema": TEXT}}, "json_schema"),
    (GENERATE, {"text": "x", "sampling_params": {"regex": "a+"}}, "regex"),
    (GENERATE, {"text": "x", "sampling_params": {"ebnf": 'root ::= "a"'}}, "ebnf"),
    (
        GENERATE,
        {
            "text": "x",
            "sampling_params": {"structural_tag": orjson.dumps(TAG).decode()},
        },
        "structural_tag",
    ),
    (GENERATE, {"text": ["x", "y"], "sampling_params": [{}, {"regex": "a+"}]}, "regex"),
    (
        "/vertex_generate",
        {
            "instances": [{"text": "x"}],
            "parameters": {"sampling_params": {"regex": "a"}},
        },
        "regex",
    ),
    (
        "/inference/v1/generate",
        {"token_ids": [1], "sampling_params": {"structured_outputs": {"regex": "a"}}},
        "regex",
    ),
    ("/invocations", {"regex": "a+"}, "regex"),
]


@pytest.mark.parametrize(("path", "body", "kind"), GRAMMARS)
def test_a_grammar_is_seen_through_its_door(path: str, body: dict[str, Any], kind: str) -> None:
    seen = see(path, body)
    assert seen.features.grammar == kind
    assert (seen.cost.step_us > 0) == (kind != "none")
    assert seen.grammar_key.startswith("g1-") == (kind != "none")
    assert (seen.features.grammar_bytes > 0) == (kind != "none")


def test_the_same_schema_has_one_grammar_key_through_every_door() -> None:
    bodies = [
        (
            CHAT,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": SCHEMA},
                }
            },
        ),
        (CHAT, {"json_schema": TEXT}),
        (CHAT, {"guided_json": SCHEMA}),
        (GENERATE, {"sampling_params": {"json_schema": TEXT}}),
        (
            RESPONSES,
            {"text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}},
        ),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": SCHEMA}}),
    ]
    assert len({see(path, body).grammar_key for path, body in bodies}) == 1


HOOKS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (CHAT, {"logprobs": True}, {"logprobs": True, "top_logprobs": 0}),
    (
        CHAT,
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": True, "top_logprobs": 20},
    ),
    (
        CHAT,
        {"logprobs": False, "top_logprobs": 20},
        {"logprobs": False, "top_logprobs": 0},
    ),
    (COMPLETIONS, {"logprobs": 5}, {"logprobs": True, "top_logprobs": 5}),
    (COMPLETIONS, {"logprobs": 0}, {"logprobs": True, "top_logprobs": 0}),
    (COMPLETIONS, {"logprobs": 5, "echo": True}, {"prompt_logprobs": 5}),
    (COMPLETIONS, {"echo": True}, {"prompt_logprobs": -1}),
    (CHAT, {"echo": True, "top_logprobs": 3}, {"prompt_logprobs": 3}),
    (CHAT, {"prompt_logprobs": 20}, {"prompt_logprobs": 20}),
    (CHAT, {"prompt_logprobs": 0}, {"prompt_logprobs": 0}),
    (CHAT, {"logprob_token_ids": [1, 2, 3]}, {"logprobs": True, "top_logprobs": 3}),
    (
        GENERATE,
        {"return_logprob": True, "top_logprobs_num": 4},
        {"logprobs": True, "top_logprobs": 4},
    ),
    (
        GENERATE,
        {"return_logprob": [False, True], "top_logprobs_num": [1, 9]},
        {"logprobs": True, "top_logprobs": 9},
    ),
    (
        GENERATE,
        {"return_logprob": True, "logprob_start_len": 7, "top_logprobs_num": 4},
        {"prompt_logprobs": 4, "prompt_logprobs_start": 7},
    ),
    (
        GENERATE,
        {"return_logprob": True, "logprob_start_len": -1},
        {"prompt_logprobs": -1},
    ),
    (
        GENERATE,
        {"return_logprob": True, "token_ids_logprob": [[1, 2]]},
        {"top_logprobs": 2},
    ),
    (
        RESPONSES,
        {"include": ["message.output_text.logprobs"], "top_logprobs": 6},
        {"top_logprobs": 6},
    ),
    (CHAT, {"logprobs": True, "top_logprobs": -1}, {"top_logprobs": 1 << 17}),
    (COMPLETIONS, {"logprobs": -1}, {"top_logprobs": 1 << 17}),
    (CHAT, {"prompt_logprobs": -1}, {"prompt_logprobs": 1 << 17}),
    (CHAT, {"prompt_logprobs": True}, {"prompt_logprobs": 0}),
    (
        "/inference/v1/generate",
        {"sampling_params": {"prompt_logprob_token_ids": [5, 6, 7]}},
        {"prompt_logprobs": 3},
    ),
    (CHAT, {"n": 4, "use_beam_search": True}, {"n": 4, "logprobs": True, "top_logprobs": 8}),
    (CHAT, {"n": 4, "use_beam_search": False}, {"n": 4, "logprobs": False}),
    (CHAT, {"n": 2, "extra_body": {"n": 4}}, {"n": 4}),
    (CHAT, {"top_k": 40}, {"top_k": 40}),
    (CHAT, {"top_k": -1}, {"top_k": -1}),
    (CHAT, {"top_k": 0}, {"top_k": -1}),
    (CHAT, {"stop": "END"}, {"stop": 1, "stop_bytes": 3}),
    (CHAT, {"stop": ["a", "bé", None]}, {"stop": 2, "stop_bytes": 4}),
    (MESSAGES, {"stop_sequences": ["a", "b"]}, {"stop": 2}),
    (GENERATE, {"sampling_params": {"stop_strs": ["a", "b"]}}, {"stop": 2}),
    (GENERATE, {"sampling_params": {"stop_regex_strs": "a"}}, {"stop_regex": 1}),
    (CHAT, {"stop_token_ids": [1, 2]}, {"stop_tokens": 2}),
    (CHAT, {"stop_token_ids": ["1", 2.0, None]}, {"stop_tokens": 2}),
    (CHAT, {"allowed_token_ids": [1, 2]}, {"logit_bias": 2}),
    (CHAT, {"bad_words": ["a", "b"]}, {"logit_bias": 2}),
    (CHAT, {"min_tokens": 5}, {"penalties": True}),
    (GENERATE, {"sampling_params": {"min_new_tokens": 5}}, {"penalties": True}),
    (CHAT, {"logits_processors": ["x"]}, {"custom_logit_processor": True}),
    (CHAT, {"stop_regex": "a+"}, {"stop_regex": 1}),
    (GENERATE, {"sampling_params": {"stop_regex": ["a", "b"]}}, {"stop_regex": 2}),
    (CHAT, {"logit_bias": {"1": 5, "2": -5}}, {"logit_bias": 2}),
    (CHAT, {"frequency_penalty": 0.5}, {"penalties": True}),
    (CHAT, {"presence_penalty": 0, "repetition_penalty": 1}, {"penalties": False}),
    (CHAT, {"repetition_penalty": 1.1}, {"penalties": True}),
    (CHAT, {"custom_logit_processor": "x"}, {"custom_logit_processor": True}),
    (
        GENERATE,
        {"custom_logit_processor": [None, "x"]},
        {"custom_logit_processor": True},
    ),
    (CHAT, {"return_hidden_states": True}, {"return_hidden_states": True}),
    (CHAT, {"return_hidden_states": "last"}, {"return_hidden_states": True}),
    (CHAT, {"n": 4}, {"n": 4, "batch": 1}),
    (COMPLETIONS, {"n": 2, "best_of": 5}, {"n": 5}),
    (
        COMPLETIONS,
        {"prompt": ["a", "bc"], "n": 3},
        {"n": 6, "batch": 2, "prompt_bytes": 3},
    ),
    (COMPLETIONS, {"prompt": [1, 2, 3]}, {"batch": 1, "prompt_bytes": 12}),
    (COMPLETIONS, {"prompt": [[1, 2], [3]]}, {"batch": 2, "prompt_bytes": 12}),
    (
        GENERATE,
        {"text": ["a", "b", "c"], "sampling_params": {"n": 2}},
        {"n": 6, "batch": 3},
    ),
    (GENERATE, {"input_ids": [[1], [2]]}, {"batch": 2}),
    (GENERATE, {"sampling_params": {"beam_width": 8}}, {"n": 8}),
    (GENERATE, {"sampling_params": {"max_new_tokens": 9}}, {"max_tokens": 9}),
    (CHAT, {"max_tokens": 5, "max_completion_tokens": 9}, {"max_tokens": 9}),
    (RESPONSES, {"max_output_tokens": 7}, {"max_tokens": 7}),
    (CHAT, {"rid": "r-1"}, {"rid_given": True}),
    (CHAT, {"tools": [TOOL, TOOL]}, {"tools": 2}),
    (CHAT, {"messages": [{"role": "user", "content": "é"}]}, {"prompt_bytes": 2}),
    (
        CHAT,
        {
            "messages": [
                {
                    "content": [
                        {"type": "text", "text": "abc"},
                        {"type": "image_url", "image_url": {"url": "d"}},
                    ]
                }
            ]
        },
        {"prompt_bytes": 3},
    ),
    (
        MESSAGES,
        {"system": "abc", "messages": [{"role": "user", "content": "de"}]},
        {"prompt_bytes": 5},
    ),
    (RESPONSES, {"instructions": "abc", "input": "de"}, {"prompt_bytes": 5}),
    (
        RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "abc"}]}]},
        {"prompt_bytes": 3},
    ),
]


def names_in(body: dict[str, Any]) -> set[str]:
    nested = [body.get(name) for name in ("sampling_params", "extra_body", "parameters")]
    entries = [entry for value in nested for entry in (value if isinstance(value, list) else [value])]
    return set(body).union(*(names_in(entry) for entry in entries if isinstance(entry, dict)))


def test_every_spelling_of_a_field_is_in_these_tables() -> None:
    in_tables = {name for _, body, _ in [*GRAMMARS, *HOOKS] for name in names_in(body)}
    assert in_tables >= SAMPLING_KEYS


@pytest.mark.parametrize(("path", "body", "expected"), HOOKS)
def test_a_hook_is_seen_through_its_door(path: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    features = see(path, body).features
    assert {name: getattr(features, name) for name in expected} == expected


def test_a_plain_body_and_one_that_spells_out_the_defaults_are_one_shape() -> None:
    messages = [{"role": "user", "content": "hi"}]
    plain = see(CHAT, {"model": "m", "messages": messages})
    spelled = see(
        CHAT,
        {
            "model": "m",
            "messages": messages,
            "n": 1,
            "presence_penalty": 0,
            "stop": None,
        },
    )
    assert plain.signature == spelled.signature
    assert plain.cost.step_us == spelled.cost.step_us


def test_the_signature_never_depends_on_the_prompt() -> None:
    one = see(
        CHAT,
        {"model": "m", "regex": "a+", "messages": [{"role": "user", "content": "hi"}]},
    )
    other = see(
        CHAT,
        {
            "model": "m",
            "regex": "a+",
            "messages": [{"role": "user", "content": "something else"}],
        },
    )
    assert one.signature == other.signature
    assert one.grammar_key == other.grammar_key


def test_cost_multiplies_with_the_sequences() -> None:
    one = see(COMPLETIONS, {"prompt": "a", "regex": "a+"})
    six = see(COMPLETIONS, {"prompt": ["a", "b"], "n": 3, "regex": "a+"})
    assert six.cost.step_us == pytest.approx(6 * one.cost.step_us)


def test_the_predictions_suit_the_budgets_of_the_built_in_pools() -> None:
    plain = see(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
    schema = see(CHAT, {"response_format": {"type": "json_schema", "schema": SCHEMA}})
    bomb = see(CHAT, {"ebnf": "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]"})
    assert plain.cost.step_us < 1000
    assert schema.cost.step_us < 2000 < bomb.cost.step_us
