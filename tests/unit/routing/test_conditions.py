from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost import Api, Classification, Features, Grammar, HookCost
from gateway.routing.conditions import Condition, ConditionError, compile_condition, compile_conditions
from gateway.routing.expression import all_of, any_of, compile_first_match
from gateway.routing.request import RouteRequest
from gateway.routing.variables import VARIABLES, Kind

MakeRequest = Callable[..., RouteRequest]


@pytest.mark.parametrize(
    ("key", "wanted", "request_with", "holds"),
    [
        # text
        ("method", "POST", {}, True),
        ("method", "post", {}, True),
        ("method", "GET", {}, False),
        ("path", "/v1/chat/completions", {}, True),
        ("path", "/v1/chat", {}, False),
        ("path", "/v1/*", {}, True),
        ("path", "*/completions", {}, True),
        ("path", "/v1/embeddings*", {}, False),
        ("path", "/v1/chat.completions", {}, False),
        ("model", "qwen3-8b", {}, True),
        ("model", "qwen*", {}, True),
        ("model", "QWEN*", {}, False),
        ("model", "qwen3-?b", {}, True),
        ("model", "qwen[0-9]-8b", {}, True),
        ("model", ["llama*", "qwen*"], {}, True),
        ("model", ["llama*", "gemma*"], {}, False),
        ("model", "*", {"model": None}, False),
        ("model", "qwen3-8b", {"model": None}, False),
        ("signature", "s1-abc", {"signature": "s1-abc"}, True),
        ("grammar_key", "g1-*", {"grammar_key": ""}, False),
        # choices
        ("api", "chat", {}, True),
        ("api", ["generate", "messages"], {}, False),
        ("grammar", "none", {}, True),
        ("grammar", "any", {}, False),
        ("grammar", "any", {"grammar": Grammar.tools}, True),
        ("grammar", "none", {"grammar": Grammar.tools}, False),
        ("grammar", "ebnf", {"grammar": Grammar.ebnf}, True),
        ("grammar", ["ebnf", "regex"], {"grammar": Grammar.regex}, True),
        ("grammar", ["ebnf", "regex"], {"grammar": Grammar.json_schema}, False),
        # flags
        ("stream", True, {"stream": True}, True),
        ("stream", False, {"stream": True}, False),
        ("stream", False, {}, True),
        ("logprobs", True, {"logprobs": True}, True),
        ("penalties", True, {}, False),
        ("custom_logit_processor", True, {"custom_logit_processor": True}, True),
        ("heavy", True, {"heavy": "nested deeper than 64"}, True),
        ("heavy", False, {"heavy": "nested deeper than 64"}, False),
        ("heavy", False, {}, True),
        # numbers
        ("step_us", ">300", {"step_us": 300.1}, True),
        ("step_us", ">300", {"step_us": 300.0}, False),
        ("step_us", ">=300", {"step_us": 300.0}, True),
        ("step_us", "<300", {"step_us": 299.9}, True),
        ("step_us", "<=300", {"step_us": 300.0}, True),
        ("step_us", "<=300", {"step_us": 301.0}, False),
        ("step_us", " > 1e3 ", {"step_us": 1001.0}, True),
        ("step_us", "100..300", {"step_us": 100.0}, True),
        ("step_us", "100..300", {"step_us": 300.0}, True),
        ("step_us", "100..300", {"step_us": 300.5}, False),
        ("step_us", [">300", "<10"], {"step_us": 5.0}, True),
        ("step_us", [">300", "<10"], {"step_us": 50.0}, False),
        ("compile_ms", ">500", {"compile_ms": 1750.0}, True),
        ("n", 4, {"n": 4}, True),
        ("n", "4", {"n": 4}, True),
        ("n", "=4", {"n": 4}, True),
        ("n", "==4", {"n": 5}, False),
        ("n", "!=1", {"n": 4}, True),
        ("n", [1, "4..8"], {"n": 6}, True),
        ("body_bytes", ">1_000_000", {"body_bytes": 2_000_000}, True),
        ("grammar_us", ">100", {"by_hook": {"grammar": 101.0}}, True),
        ("logprobs_us", ">100", {"by_hook": {"grammar": 101.0}}, False),
        # counts
        ("tools", True, {"tools": 1}, True),
        ("tools", False, {"tools": 1}, False),
        ("tools", False, {}, True),
        ("tools", ">100", {"tools": 263}, True),
        ("stop_regex", True, {}, False),
        ("top_logprobs", "0..5", {}, True),
        # what may be absent
        ("max_tokens", ">1000", {"max_tokens": 4096}, True),
        ("max_tokens", ">1000", {}, False),
        ("max_tokens", "<1000", {}, False),
        ("max_tokens", "!=5", {}, False),
        ("max_tokens", False, {}, True),
        ("max_tokens", True, {"max_tokens": 0}, True),
        ("prompt_logprobs", True, {"prompt_logprobs": 0}, True),
        ("prompt_logprobs", True, {}, False),
        ("prompt_logprobs", "<5", {}, False),
        ("prompt_logprobs", "<5", {"prompt_logprobs": 0}, True),
    ],
)
def test_a_condition_holds_for_what_it_names(
    make_request: MakeRequest, key: str, wanted: object, request_with: dict[str, Any], holds: bool
) -> None:
    assert compile_condition(key, wanted).holds(make_request(**request_with)) is holds


@pytest.mark.parametrize(
    ("key", "wanted", "said"),
    [
        ("stepus", ">1", "did you mean step_us?"),
        ("colour", "red", "expected one of method, path, "),
        ("step_us", "", "expected 300"),
        ("step_us", "fast", "found 'fast'"),
        ("step_us", ">fast", "found '>fast'"),
        ("step_us", ">>1", "found '>>1'"),
        ("step_us", "1 2", "found '1 2'"),
        ("step_us", True, "found True"),
        ("step_us", None, "found None"),
        ("step_us", {"above": 1}, "expected 300"),
        ("step_us", "nan", "found 'nan'"),
        ("step_us", "<inf", "found '<inf'"),
        ("step_us", float("nan"), "found nan"),
        ("n", "8..4", "from the lower to the higher"),
        ("n", "4..", "found '4..'"),
        ("n", "..4", "found '..4'"),
        ("n", "1..2..3", "found '1..2..3'"),
        ("n", True, "found True"),
        ("n", [], "expected at least one value"),
        ("n", [1, []], "found []"),
        ("stream", "yes", "expected true or false"),
        ("stream", 1, "expected true or false"),
        ("model", 7, "expected text"),
        ("model", "", "expected text"),
        ("model", None, "expected text"),
        ("grammar", "regx", "did you mean regex?"),
        ("grammar", True, "expected one of none, json_object"),
        ("grammar", ["ebnf", 3], "expected one of none, json_object"),
        ("api", "smoke-signals", "expected one of chat"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused_with_what_was_expected(key: str, wanted: object, said: str) -> None:
    with pytest.raises(ConditionError) as refused:
        compile_condition(key, wanted)

    assert refused.value.key == key
    assert said in str(refused.value)


def test_all_conditions_of_a_rule_must_hold(make_request: MakeRequest) -> None:
    stream, large, structured = (
        compile_condition(key, wanted) for key, wanted in (("stream", True), ("n", ">4"), ("grammar", "any"))
    )
    both = make_request(stream=True, n=8)

    def holds(*conditions: Condition) -> bool:
        expression = all_of([condition.expression for condition in conditions])
        return compile_first_match([expression])(both) == 0

    assert holds()
    assert holds(stream)
    assert holds(stream, large)
    assert not holds(stream, large, structured)
    assert not holds(structured, stream)


def test_the_first_expression_that_holds_is_found_and_constants_are_never_source(make_request: MakeRequest) -> None:
    wanted = ("other", "{0} or True", "'); raise SystemExit #", "qwen3-8b", "qwen3-8b")
    expressions = [compile_condition("model", model).expression for model in wanted]

    assert compile_first_match(expressions)(make_request()) == 3
    assert compile_first_match(expressions[:3])(make_request()) == 3
    assert compile_first_match([any_of(expressions), all_of(expressions)])(make_request()) == 0
    assert compile_first_match([any_of(expressions[:3]), all_of(expressions[3:])])(make_request()) == 1


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_can_be_read_from_any_request_and_compiled(make_request: MakeRequest, name: str) -> None:
    variable = VARIABLES[name]
    wanted: dict[Kind, object] = {
        Kind.text: "x*",
        Kind.choice: next(iter(variable.choices or {}), None),
        Kind.flag: True,
        Kind.number: ">1",
        Kind.count: True,
        Kind.optional: True,
        Kind.texts: {"x-anything": "x*"},
    }

    (condition,) = compile_conditions({name: wanted[variable.kind]})

    assert condition.holds(make_request()) in (True, False)
    assert variable.about


def test_every_feature_that_can_matter_to_a_rule_has_a_variable() -> None:
    no_reason_to_route_by = {"rid_given", "prompt_logprobs_start"}

    assert {field.name for field in fields(Features)} - no_reason_to_route_by <= set(VARIABLES)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(limit=NUMBERS, actual=NUMBERS)
def test_comparisons_agree_with_arithmetic(limit: float, actual: float) -> None:
    request = RouteRequest("POST", "/", Classification(Features(), HookCost(step_us=actual), "s1-0"))

    def holds(wanted: object) -> bool:
        return compile_condition("step_us", wanted).holds(request)

    assert holds(f">{limit!r}") == (actual > limit)
    assert holds(f">={limit!r}") == (actual >= limit)
    assert holds(f"<{limit!r}") == (actual < limit)
    assert holds(f"<={limit!r}") == (actual <= limit)
    assert holds(f"!={limit!r}") == (actual != limit)
    assert holds(limit) == (actual == limit)


ANY_YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


@given(key=st.sampled_from(sorted(VARIABLES)), wanted=ANY_YAML)
def test_whatever_stands_in_the_yaml_is_compiled_or_refused(key: str, wanted: object) -> None:
    request = RouteRequest("POST", "/v1/completions", Classification(Features(api=Api.completions), HookCost(), "s1-0"))
    try:
        condition = compile_condition(key, wanted)
    except ConditionError:
        return
    assert isinstance(condition, Condition)
    assert condition.holds(request) in (True, False)
