"""Conditions in CEL: what they mean, what is refused at load, and what becomes of those that can't be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cel import cel  # as program.py does
from hypothesis import given
from hypothesis import strategies as st

from gateway.hookcost import Grammar
from gateway.routing.cel.checker import check
from gateway.routing.cel.parser import parse
from gateway.routing.cel.program import OPTIONAL, TYPES, compile_cel
from gateway.routing.cel.tree import CelError
from gateway.routing.conditions import ConditionError
from gateway.routing.head import PaperHead
from gateway.routing.knowledge import NOTHING_KNOWN
from gateway.routing.request import RouteRequest
from gateway.routing.rule import compile_rule
from gateway.routing.variables import VARIABLES

MakeRequest = Callable[..., RouteRequest]


@pytest.mark.parametrize(
    ("expression", "request_with", "holds"),
    [
        (
            "request.grammar == 'json_schema' && step_us > 300.0",
            {"grammar": Grammar.json_schema, "step_us": 301.0},
            True,
        ),
        (
            "request.grammar == 'json_schema' && step_us > 300.0",
            {"grammar": Grammar.json_schema, "step_us": 300.0},
            False,
        ),
        ("step_us > 300", {"step_us": 300.5}, True),
        ("step_us * 2.0 >= 600.0", {"step_us": 300.0}, True),
        ("step_us == 300", {"step_us": 300.0}, True),
        ("n in [1, 2, 4]", {"n": 4}, True),
        ("n in [1, 2, 4]", {"n": 3}, False),
        ("!(n == 3)", {"n": 3}, False),
        ("-n == -3", {"n": 3}, True),
        ("n % 2 == 1", {"n": 3}, True),
        ("model.startsWith('qwen') && model.endsWith('8b') && model.contains('3')", {}, True),
        ("size(model) == 8 && model.size() > 7", {}, True),
        ("model + '!' == 'qwen3-8b!'", {}, True),
        ("stream ? n > 1 : n > 5", {"stream": True, "n": 2}, True),
        ("stream ? n > 1 : n > 5", {"n": 2}, False),
        ("double(n) / 2.0 == 1.5", {"n": 3}, True),
        ("string(n) == '3' && int('3') == n", {"n": 3}, True),
        ("has(request.max_tokens) && request.max_tokens > 5", {"max_tokens": 6}, True),
        ("has(request.max_tokens) && request.max_tokens > 5", {}, False),
        ("!has(request.max_tokens) || max_tokens > 5", {}, True),
        ("max_tokens > 5 || n == 1", {}, True),
        ("heavy", {"heavy": "too deep"}, True),
        ("!custom_logit_processor", {}, True),
        ("grammar_us > 100.0", {"by_hook": {"grammar": 101.0}}, True),
        ("prompt_tokens <= 25", {"prompt_bytes": 100}, True),
        ("prompt_tokens <= 25", {"prompt_bytes": 101}, False),
        ("model == r'a\\d'", {"model": "a\\d"}, True),
        ("model == 'a\\nb' // of two lines", {"model": "a\nb"}, True),
        ("signature == 's1-abc'", {"signature": "s1-abc"}, True),
        ("0x1F == 31 && 1e3 == 1000.0", {}, True),
    ],
)
def test_an_expression_holds_for_what_it_says(
    make_request: MakeRequest, expression: str, request_with: dict[str, Any], holds: bool
) -> None:
    assert compile_cel(expression)(make_request(**request_with), NOTHING_KNOWN) is holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("headers['x-tier'] == 'gold'", True),
        ("headers['X-Tier'] == 'gold'", True),
        ("'x-tier' in headers && 'x-none' in headers", False),
        ("has(headers.accept)", True),
        ("request.headers['accept'].startsWith('text/')", True),
        ("query['debug'] == '1' && !('other' in query)", True),
        ("tenant == 'acme'", True),
    ],
)
def test_headers_and_the_query_are_maps_of_texts(make_request: MakeRequest, expression: str, holds: bool) -> None:
    head = PaperHead("/v1/chat/completions?debug=1", [("X-Tier", "gold"), ("Accept", "text/html")])
    request = RouteRequest("POST", "/", make_request().classification, "acme", head)

    assert compile_cel(expression)(request, NOTHING_KNOWN) is holds


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            "gramar == 'x'",
            "expected a variable of a request, found gramar (at line 1, column 1 of the expression: gramar",
        ),
        ("step_us > 300 && gramar == 'x'", "column 18"),
        ("step_us >\n  'fast'", "expected two numbers, or two strings, around >, found a double and a string"),
        ("n == 1 &&\n  modle == 'x'", "at line 2, column 3"),
        ("gramar == 'x'", "did you mean grammar?"),
        ("n == '3'", "expected values of one type on both sides of ==, found an int and a string"),
        ("n", "expected a condition, which is true or false, found an int"),
        ("stream && n", "expected a condition beside &&, found an int"),
        ("!n", "expected a condition behind !"),
        ("-stream", "expected a number behind -"),
        ("step_us * 2 > 3.0", "write the whole number with a point"),
        ("step_us % 2.0 == 1.0", "two values of one type (int) around %"),
        ("n ? stream : heavy", "expected a condition before ?"),
        ("stream ? 1 : 'a'", "expected values of one type behind ? and :"),
        ("model.startswith('x')", "did you mean startsWith?"),
        ("model.startsWith(3)", "expected startsWith(string), found startsWith(int)"),
        ("n.startsWith('x')", "expected a string before .startsWith, found an int"),
        ("model.matches('x')", "expected a function of bounded cost, found matches"),
        ("[1, 2].all(x, x > 0)", "expected a function without a loop, found all"),
        ("foo(1)", "expected one of double, has, int, size, string, found foo"),
        ("[1, 'a'] == [1]", "expected a list of values of one type"),
        ("[] == []", "expected a list of values of one type, found an empty list"),
        ("n in ['a']", "expected a list of int behind `in`"),
        ("headers[model] == 'x'", "expected a name in quotes, found a string"),
        ("model in headers", "expected a name in quotes"),
        ("headers.size() > 3", "expected a string or a list"),
        ("request == 1", "expected a variable of a request, found request"),
        ("model.name == 'x'", "only request has fields"),
        ("has(model)", "expected has(request.name)"),
        ("has(request.n)", "it is always there"),
        ("1 < 2 < 3", "around <, found a bool and an int"),
        ("n ==", "expected a value, found the end"),
        ("(n == 1", "expected `)`, found the end"),
        ("n == 1)", "expected an operator or the end of the expression, found )"),
        ("n = 1", "found ="),
        ("n == 'x", "expected a text with its closing quote"),
        (r"model == 'a\d'", "expected a valid escape"),
        ("n == 99999999999999999999", "expected a whole number below 2^63"),
        ("{'a': 1} == {}", "found {'a':"),
        ("for == 1", "expected a value, found for"),
        ("(" * 30 + "stream" + ")" * 30, "at most 24 levels of brackets"),
        ("n == 1 || " * 200 + "stream", "at most 2,000 characters"),
        ("||".join(["n<1"] * 150), "at most 400 words and signs"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected_and_where(expression: str, said: str) -> None:
    with pytest.raises(ConditionError) as refused:
        compile_cel(expression)

    assert said in str(refused.value)
    assert refused.value.key == "cel"


def test_an_absent_value_is_counted_apart_from_a_failure(make_request: MakeRequest) -> None:
    absent, missing, divided = map(
        compile_cel, ("max_tokens > 5", "headers['x'] == 'a'", "has(request.max_tokens) || 10 / (n - 1) > 1")
    )
    request = make_request()

    assert not any(program(request, NOTHING_KNOWN) for program in (absent, missing, divided))
    assert [(program.absent, program.failed) for program in (absent, missing, divided)] == [(1, 0), (1, 0), (0, 1)]


def test_a_number_that_no_int64_holds_is_compared_all_the_same(make_request: MakeRequest) -> None:
    program = compile_cel("max_tokens > 5")

    assert program(make_request(max_tokens=1 << 70), NOTHING_KNOWN)
    assert program.failed == 0


def test_plain_keys_beside_cel_are_looked_at_first(make_request: MakeRequest) -> None:
    rule = compile_rule("r", "p", {"cel": "max_tokens > 5", "stream": True})

    assert [condition.key for condition in rule.conditions] == ["stream", "cel"]
    assert rule.program is not None
    assert not all(condition.holds(make_request()) for condition in rule.conditions)


def test_it_says_which_values_it_looked_at(make_request: MakeRequest) -> None:
    program = compile_cel("request.grammar == 'none' && n > 1 && has(request.max_tokens)")

    assert program.seen(make_request(n=2), NOTHING_KNOWN) == {"grammar": "none", "n": 2}


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_has_a_type_and_can_be_read(make_request: MakeRequest, name: str) -> None:
    literal = {"string": "'x'", "bool": "true", "int": "1", "double": "1.5", "map(string, string)": None}[TYPES[name]]
    expression = f"{name} != {literal}" if literal else f"'x' in {name}"

    assert compile_cel(expression)(make_request(max_tokens=2, prompt_logprobs=2, top_k=2), NOTHING_KNOWN) in (
        True,
        False,
    )


# --- what our checker lets pass, the evaluator can evaluate

NUMBERS = st.sampled_from(["n", "max_tokens", "batch", "1", "42", "0"])
DOUBLES = st.sampled_from(["step_us", "compile_ms", "1.5", "300.0", "2e3"])
TEXTS = st.sampled_from(["model", "path", "'x'", '"qwen3-8b"', "r'a\\b'", "headers['x']"])
FLAGS = st.sampled_from(["stream", "heavy", "true", "false", "has(request.max_tokens)"])


def _grown(conditions: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    numeric = st.tuples(NUMBERS | DOUBLES, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS | DOUBLES)
    return (
        numeric.map(" ".join)
        | st.tuples(TEXTS, st.sampled_from(["==", "!=", "<"]), TEXTS).map(" ".join)
        | st.tuples(TEXTS, st.sampled_from(["startsWith", "contains"]), TEXTS).map(lambda x: f"{x[0]}.{x[1]}({x[2]})")
        | st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda x: f"{x[0]} + {x[1]} in [{x[2]}, 3]")
        | st.tuples(conditions, st.sampled_from(["&&", "||"]), conditions).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})")
        | conditions.map(lambda x: f"!({x})")
        | st.tuples(conditions, conditions, conditions).map(lambda x: f"({x[0]}) ? ({x[1]}) : ({x[2]})")
    )


@given(expression=st.recursive(FLAGS, _grown, max_leaves=6))
def test_whatever_passes_the_check_is_evaluated_to_a_truth_value_or_lacks_a_value(expression: str) -> None:
    request = RouteRequest("POST", "/v1", _classification(), "t", PaperHead("/v1", [("x", "gold")]))
    program = compile_cel(expression)

    assert program(request, NOTHING_KNOWN) in (True, False)
    assert program.failed == 0, expression


@given(text=st.text(alphabet="abn123'\"&|<>=!?:.,()[] +-*/%\\", max_size=40))
def test_nothing_passes_the_check_that_the_evaluator_can_not_read(text: str) -> None:
    try:
        check(parse(text), TYPES, OPTIONAL)
    except CelError:
        return
    cel.compile(text)


def _classification() -> Any:
    from gateway.hookcost import Classification, Features, HookCost

    return Classification(Features(model="qwen3-8b", n=2), HookCost(step_us=300.0, compile_ms=1.0), "s1-0")
