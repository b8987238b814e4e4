"""Many rules: what is found by look-ups is what would be found by looking at each in turn."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.hookcost import Api, Classification, Features, Grammar, HookCost
from gateway.routing.head import PaperHead
from gateway.routing.knowledge import NOTHING_KNOWN
from gateway.routing.matcher import compile_matcher
from gateway.routing.request import RouteRequest
from gateway.routing.rule import Rule, compile_rule

MODELS = [f"model-{number}" for number in range(12)]
CONDITIONS: list[st.SearchStrategy[tuple[str, Any]]] = [
    st.tuples(
        st.just("model"), st.sampled_from([*MODELS, "model-*", "*"]) | st.lists(st.sampled_from(MODELS), min_size=1)
    ),
    st.tuples(st.just("grammar"), st.sampled_from(["any", "none", "ebnf", "json_schema"])),
    st.tuples(st.just("api"), st.sampled_from(["chat", "completions"])),
    st.tuples(st.just("stream"), st.booleans()),
    st.tuples(st.just("step_us"), st.sampled_from([">100", "<100", "50..150"])),
    st.tuples(st.just("max_tokens"), st.booleans() | st.sampled_from([">10", "<10"])),
    st.tuples(st.just("tenant"), st.sampled_from(["a", "b", ["a", "c"]])),
    st.tuples(st.just("headers"), st.sampled_from([{"x-tier": "gold"}, {"x-tier": False}, {"x-tier": "g*"}])),
    st.tuples(st.just("cel"), st.sampled_from(["n > 1", "max_tokens > 10"])),
]
WHENS = st.lists(st.one_of(CONDITIONS), min_size=1, max_size=4).map(dict)
REQUESTS = st.builds(
    lambda model, grammar, api, stream, step_us, max_tokens, tenant, tier, n: RouteRequest(
        "POST",
        "/",
        Classification(
            Features(api=api, model=model, stream=stream, grammar=grammar, max_tokens=max_tokens, n=n),
            HookCost(step_us=step_us),
            "s1-0",
        ),
        tenant,
        PaperHead("/", [("x-tier", tier)] if tier else []),
    ),
    st.sampled_from([*MODELS, None, "other"]),
    st.sampled_from(list(Grammar)),
    st.sampled_from(list(Api)),
    st.booleans(),
    st.sampled_from([0.0, 100.0, 120.0, 1e6]),
    st.sampled_from([None, 5, 50]),
    st.sampled_from(["a", "b", "c", ""]),
    st.sampled_from(["gold", "green", "silver", ""]),
    st.integers(1, 2),
)


def in_turn(rules: list[Rule], request: RouteRequest) -> int:
    for number, rule in enumerate(rules):
        if all(condition.holds(request) for condition in rule.conditions):
            return number
    return len(rules)


@settings(max_examples=60, deadline=None)
@given(whens=st.lists(WHENS, min_size=1, max_size=80), requests=st.lists(REQUESTS, min_size=1, max_size=6))
def test_the_first_rule_that_matches_is_found_however_many_there_are(
    whens: list[dict[str, Any]], requests: list[RouteRequest]
) -> None:
    rules = [compile_rule(f"r{number}", "p", when) for number, when in enumerate(whens)]
    first_match = compile_matcher(rules, NOTHING_KNOWN)

    for request in requests:
        assert first_match(request) == in_turn(rules, request)


def test_a_rule_with_a_share_takes_a_turn_only_where_no_rule_before_it_matches() -> None:
    rules = [compile_rule(f"m{number}", "p", {"model": f"model-{number}"}) for number in range(30)]
    rules += [compile_rule("half", "p", {}, weight=50), compile_rule("rest", "p", {})]
    first_match = compile_matcher(rules, NOTHING_KNOWN)

    def of(model: str) -> RouteRequest:
        return RouteRequest("POST", "/", Classification(Features(model=model), HookCost(), "s1-0"))

    found = []
    for _ in range(100):
        assert first_match(of("model-7")) == 7
        found.append(first_match(of("none")))

    assert set(found) == {30, 31}
    assert 48 <= found.count(30) <= 52


def five_hundred() -> list[Rule]:
    chance = random.Random(4)
    rules = []
    for number in range(500):
        when: dict[str, Any] = {"model": f"tuned-{number}"}
        if number % 3 == 1:
            when = {"tenant": f"tenant-{number}", "grammar": chance.choice(["any", "none"])}
        elif number % 3 == 2:
            when = {"headers": {"x-team": f"team-{number}"}, "step_us": f">{chance.randrange(1000)}"}
        rules.append(compile_rule(f"r{number}", "p", when))
    return rules


def test_of_five_hundred_rules_few_are_looked_at() -> None:
    rules = five_hundred()
    first_match = compile_matcher(rules, NOTHING_KNOWN)
    head = PaperHead("/", [("x-team", "team-none")])
    request = RouteRequest("POST", "/", Classification(Features(model="m"), HookCost(), "s1-0"), "nobody", head)
    linear = compile_matcher(rules[:24], NOTHING_KNOWN)

    assert first_match(request) == 500
    # Both are timed here and now, so that it does not matter how fast the machine is.
    assert _best(first_match, request) < 10 * _best(linear, request)


def _best(match: Callable[[RouteRequest], int], request: RouteRequest) -> float:
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(50):
            match(request)
        best = min(best, time.perf_counter() - began)
    return best


@pytest.mark.parametrize("count", [0, 1, 23, 24, 25, 100])
def test_no_match_is_the_number_of_rules(make_request: Callable[..., RouteRequest], count: int) -> None:
    rules = [compile_rule(f"r{number}", "p", {"model": f"x{number}"}) for number in range(count)]

    assert compile_matcher(rules, NOTHING_KNOWN)(make_request()) == count
