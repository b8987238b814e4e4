"""What hurt servers in production (public issues), a test each: heavy, refused or bounded, by backend and version."""

import random
from typing import Any

import pytest

from gateway.hookcost import Classification, Classifier, Grammar, HookCost
from gateway.hookcost.policy import policy_from
from gateway.hookcost.prices import CostModel
from tests.unit.hookcost.conftest import Ask

HEAVY_COMPILE_MS = 500
HEAVY_STEP_US = 2000
"""The limits of the embedded configuration."""


def heavy(cost: HookCost) -> bool:
    return cost.heavy is not None or cost.compile_ms > HEAVY_COMPILE_MS or cost.step_us > HEAVY_STEP_US


def refused(seen: Classification, code: str) -> bool:
    return seen.refusal is not None and seen.refusal.status == 400 and seen.refusal.code == code


def names(count: int, seed: int = 1) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(count)]


def nested_unions(depth: int, width: int, counter: list[int]) -> dict[str, Any]:
    if depth == 0:
        return {"type": "string"}
    options = []
    for _ in range(width):
        counter[0] += 1
        inner = nested_unions(depth - 1, width, counter)
        properties = {f"k{counter[0]}": {"const": counter[0]}, f"v{counter[0]}": inner}
        options.append({"type": "object", "properties": properties, "required": list(properties)})
    return {"oneOf": options}


def test_a1_deeply_nested_unions_are_heavy(ask: Ask) -> None:
    cost = ask.schema(nested_unions(7, 3, [0])).by_backend["xgrammar"]
    assert heavy(cost)


def test_a2_nested_counted_repetitions_are_heavy(ask: Ask) -> None:
    cost = ask.schema({"type": "string", "pattern": "^([a-z]{1,100} ){1,100}$"}).by_backend["xgrammar"]
    assert cost.compile_ms > 10_000


def test_a3_many_required_tools_are_heavy_in_sum(ask: Ask) -> None:
    parameters = {
        "type": "object",
        "properties": {f"arg{i}": {"type": "string"} for i in range(10)},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    few = ask.cost("xgrammar", tools=[tool] * 4, tool_choice="required")
    many = ask.cost("xgrammar", tools=[tool] * 263, tool_choice="required")
    assert not heavy(few)
    assert heavy(many)


def test_a4_many_optional_properties_are_heavy_on_outlines_only(ask: Ask) -> None:
    seen = ask.schema(
        {
            "type": "object",
            "properties": {f"field{i}": {"type": "string"} for i in range(12)},
        }
    )
    assert heavy(seen.by_backend["outlines"])
    assert not heavy(seen.by_backend["xgrammar"])
    assert not heavy(seen.by_backend["llguidance"])


@pytest.mark.parametrize(
    "ebnf",
    [
        'root ::= text "##" body\ntext ::= ([^#] | "#" [^#])*\nbody ::= [a-z]+',
        'root ::= ws list ws\nlist ::= "[" ws (item (ws "," ws item)*)? ws "]"\n'
        "item ::= list | [0-9]+\nws ::= [ \\t\\n]*",
    ],
    ids=["a5", "a9"],
)
def test_a5_a9_a_free_raw_grammar_is_heavy_and_told_apart_by_rules(ask: Ask, ebnf: str) -> None:
    seen = ask(ebnf=ebnf)
    assert seen.features.grammar is Grammar.ebnf
    assert heavy(seen.by_backend["llguidance"])


def test_a6_a_huge_enum_is_heavy_and_beyond_a_limit_refused(ask: Ask) -> None:
    dice = random.Random(3)
    values = ["".join(dice.choices("abcdefghijklmnop", k=20)) for _ in range(10_001)]
    seen = ask.schema({"type": "object", "properties": {"x": {"enum": values[:10_000]}}})
    assert seen.refusal is None
    assert heavy(seen.by_backend["xgrammar"])
    assert seen.by_backend["llguidance"].refused is not None
    assert refused(
        ask.schema({"type": "object", "properties": {"x": {"enum": values}}}),
        "too_many_enum_values",
    )


@pytest.mark.parametrize(
    ("schema", "last_dear", "first_cheap"),
    [
        ({"type": "object", "properties": {"x": {"type": "string", "maxLength": 100_000}}}, "0.2.8", "0.2.9"),
        (
            {
                "type": "array",
                "minItems": 5,
                "maxItems": 10,
                "items": {"type": "array", "minItems": 5, "maxItems": 10, "items": {"type": "string"}},
            },
            "0.1.19",
            "0.1.34",
        ),
    ],
    ids=["a7", "a10"],
)
def test_a7_a10_bounds_are_dear_in_the_versions_of_xgrammar_that_unroll_them(
    model: CostModel, schema: dict[str, Any], last_dear: str, first_cheap: str
) -> None:
    old, fixed, new = (
        Ask(Classifier(model, backends=(("xgrammar", version),))).schema(schema)
        for version in (last_dear, first_cheap, "0.2.9")
    )
    assert heavy(old.cost)
    assert not heavy(fixed.cost)
    assert not heavy(new.cost)


def test_a8_growing_masks_are_left_to_the_breaker_but_the_shape_is_known(
    ask: Ask,
) -> None:
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": "<a>",
            "content": {"type": "any_text"},
            "end": "</a>",
        },
    }
    assert ask(response_format=tag).features.grammar is Grammar.structural_tag


def test_a11_tools_are_counted_even_when_the_model_may_choose(ask: Ask) -> None:
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}},
    }
    seen = ask(tools=[tool] * 263, tool_choice="auto")
    assert seen.features.tools == 263
    assert seen.features.grammar is Grammar.none


def test_a12_even_a_cheap_schema_costs_each_step(ask: Ask) -> None:
    assert ask.cost("xgrammar", response_format={"type": "json_object"}).step_us > 0


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {"x": "string"}}, {"enum": []}])
def test_a13_a_schema_that_is_none_is_refused(ask: Ask, schema: dict[str, Any]) -> None:
    assert refused(ask.schema(schema), "malformed_schema")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "minItems": 5, "maxItems": 2},
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"type": "integer", "minimum": 5, "maximum": 2},
        {"type": "number", "exclusiveMinimum": 2, "maximum": 2},
        {"type": "number", "minimum": 2, "exclusiveMinimum": True, "maximum": 2},
        {
            "type": "object",
            "properties": {"a": {}},
            "minProperties": 5,
            "maxProperties": 2,
        },
    ],
)
def test_a14_contradictory_bounds_are_refused(ask: Ask, schema: dict[str, Any]) -> None:
    seen = ask.schema({"type": "object", "properties": {"x": schema}, "required": ["x"]})
    assert refused(seen, "contradictory_bounds")
    assert seen.refusal is not None
    assert "/properties/x" in seen.refusal.message


def test_a15_a_rule_can_keep_grammars_from_replicas_that_break_on_them(
    ask: Ask,
) -> None:
    assert ask.schema({"type": "object"}).features.grammar is Grammar.json_schema


@pytest.mark.parametrize(
    "body",
    [
        {"ebnf": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000},
        {"regex": "(" * 60_000 + "a" + ")" * 60_000},
        {"guided_json": {"type": "string", "pattern": "(" * 300 + "a" + ")" * 300}},
    ],
    ids=["ebnf", "regex", "pattern"],
)
def test_a16_deeply_nested_groups_never_reach_an_interactive_engine(ask: Ask, body: dict[str, Any]) -> None:
    seen = ask(**body)
    assert refused(seen, "uncompilable_regex") or refused(seen, "malformed_grammar") or seen.cost.heavy


def test_a16_a_schema_nested_more_than_64_deep_is_heavy(ask: Ask) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(80):
        schema = {"type": "array", "items": schema}
    assert "64" in str(ask.schema(schema).cost.heavy)


def test_a17_a_plain_json_object_is_seen_as_a_grammar(ask: Ask) -> None:
    assert ask(response_format={"type": "json_object"}).features.grammar is Grammar.json_object


def test_a18_a_structured_request_without_a_token_limit_can_be_told(ask: Ask) -> None:
    assert ask.schema({"type": "object"}).features.max_tokens is None


def test_a19_a20_many_alternatives_are_refused_and_some_can_be_told(ask: Ask) -> None:
    assert refused(ask(logprobs=True, top_logprobs=1000), "value_too_large")
    assert refused(ask(logprobs=True, top_logprobs=1_000_000), "value_too_large")
    assert ask(logprobs=True, top_logprobs=21).features.top_logprobs == 21
    strict = Classifier(policy=policy_from({"heavy_top_logprobs": 20}))
    assert Ask(strict)(logprobs=True, top_logprobs=21).cost.heavy is not None


def test_a21_prompt_logprobs_weigh_the_tokens_of_the_prompt(classifier: Classifier, ask: Ask) -> None:
    message = [{"role": "user", "content": "word " * 8000}]
    seen = ask(messages=message, prompt_logprobs=1)
    assert seen.features.prompt_logprobs == 1
    assert seen.cost.step_us > HEAVY_STEP_US


def test_a22_streamed_alternatives_weigh_the_length_of_the_answer(ask: Ask) -> None:
    short = ask(logprobs=True, top_logprobs=20, stream=True, max_tokens=10)
    long = ask(logprobs=True, top_logprobs=20, stream=True, max_tokens=1000)
    assert long.cost.front_end_us > 20 * short.cost.front_end_us
    assert long.cost.front_end_us == pytest.approx(57_000, rel=0.3)
    assert long.cost.step_us == short.cost.step_us


@pytest.mark.parametrize("regex", ["(x+)+y", "(a*)*b", ".*.*.*=", r"(a)\1", "(", "a{1,5}{2,}(b*c*)*"])
def test_a23_a_stop_regex_that_may_backtrack_is_refused(ask: Ask, regex: str) -> None:
    assert refused(ask(stop_regex=regex), "nonlinear_stop_regex")


@pytest.mark.parametrize("regex", ["END", "x+y", "[0-9]{1,5}\\n", "</?[a-z]+>"])
def test_a23_a_linear_stop_regex_passes(ask: Ask, regex: str) -> None:
    assert ask(stop_regex=regex).refusal is None


@pytest.mark.parametrize(
    "body",
    [
        {"logit_bias": {"10000000": 1}},
        {"stop_token_ids": [10**7]},
        {"allowed_token_ids": [10**7]},
    ],
)
def test_a24_a_token_beyond_any_vocabulary_is_refused(ask: Ask, body: dict[str, Any]) -> None:
    assert refused(ask(**body), "value_too_large")


def test_a24_the_vocabulary_is_a_setting(model: CostModel) -> None:
    strict = Ask(Classifier(model, policy_from({"max_token_id": 151_935})))
    assert refused(strict(logit_bias={"151936": 1}), "value_too_large")
    assert strict(logit_bias={"151935": 1}).refusal is None


def test_a25_many_sequences_are_refused_and_some_weigh(ask: Ask) -> None:
    assert refused(ask(n=1024), "value_too_large")
    one, eight = ask(n=1, guided_regex="a+"), ask(n=8, guided_regex="a+")
    assert eight.cost.step_us == pytest.approx(8 * one.cost.step_us)


@pytest.mark.parametrize("pattern", ["(?!a)b", "(?<=a)b", r"(a)\1", "[z-a]", "(", "a{5,2}", "*a"])
def test_a_regex_that_engines_do_not_compile_is_refused(ask: Ask, pattern: str) -> None:
    seen = ask.schema({"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}})
    assert seen.refusal is not None
    assert seen.refusal.code in ("uncompilable_regex", "lookaround")
    assert pattern in seen.refusal.message


def test_each_refusal_is_a_setting(model: CostModel) -> None:
    schema = {"type": "string", "pattern": "(?!a)b"}
    allowed = Ask(Classifier(model, policy_from({"lookaround": "allow"}))).schema(schema)
    made_heavy = Ask(Classifier(model, policy_from({"lookaround": "heavy"}))).schema(schema)
    assert (allowed.refusal, allowed.cost.heavy) == (None, None)
    assert made_heavy.refusal is None
    assert made_heavy.cost.heavy is not None
