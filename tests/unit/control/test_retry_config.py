"""What the configuration says of retries, hedges and deadlines, and what holds for a rule and its pool."""

from typing import Any

import pytest
import yaml

from gateway.control.config import ConfigError, parse_config
from gateway.control.retryplans import build_plans
from gateway.control.tally import Tally
from gateway.retry.hedging import HedgePolicy
from gateway.retry.plan import Plan
from gateway.retry.policy import RetryPolicy
from gateway.retry.reason import Reason
from gateway.routing.pool import Pool
from gateway.routing.router import Decision


def configured(pool: dict[str, Any], rule: dict[str, Any] | None = None, **more: Any) -> str:
    replicas = {"replicas": ["http://a:1"]}
    rules = [{"name": "mine", "when": {"stream": True}, "pool": "p", **rule}] if rule is not None else []
    return yaml.safe_dump(
        {"default_pool": "p", "pools": {"p": {**replicas, **pool}, "q": {"replicas": ["http://b:1"]}}, "rules": rules}
        | more
    )


def plan(pool: dict[str, Any], rule: dict[str, Any] | None = None) -> Plan:
    return build_plans(parse_config(configured(pool, rule)), Tally(), lambda: 0.0).of("mine", "p")


def test_the_defaults_are_those_of_the_policy() -> None:
    assert plan({}).retry == RetryPolicy()
    assert plan({}).hedging is None
    assert plan({}).deadline_s is None


def test_a_rule_s_keys_go_before_its_pool_s_and_the_others_stay() -> None:
    pool = {"retry": {"attempts": 4, "on": ["connect"], "back_off": {"first_s": 0.1, "factor": 3}}, "deadline_s": 9}
    retry = plan(pool, {"retry": {"attempts": 1, "back_off": {"first_s": 0.5}}}).retry
    assert (retry.attempts, retry.on) == (1, frozenset((Reason.connect,)))
    assert (retry.back_off.first_s, retry.back_off.factor, retry.back_off.max_s) == (0.5, 3, 1)
    assert plan(pool, {}).deadline_s == 9
    assert plan(pool, {"deadline_s": 2}).deadline_s == 2


@pytest.mark.parametrize(
    ("pool", "rule", "policy"),
    [
        ({"hedge": {}}, None, HedgePolicy(None, 0.95)),
        ({"hedge": {"after_s": 1}}, {}, HedgePolicy(1.0)),
        ({"hedge": {"after_s": "p50", "max_share": 0.5}}, {"hedge": {"after_s": "p99"}}, HedgePolicy(None, 0.99, 0.5)),
        ({}, {"hedge": {"after_s": 2.5, "max_step_us": 70}}, HedgePolicy(2.5, max_step_us=70)),
        ({"hedge": {"after_s": 1}}, {"hedge": {"max_share": 0}}, None),
        ({}, {}, None),
    ],
)
def test_hedges_are_of_a_pool_or_a_rule(
    pool: dict[str, Any], rule: dict[str, Any] | None, policy: HedgePolicy | None
) -> None:
    hedging = plan(pool, rule).hedging
    assert (None if hedging is None else hedging.policy) == policy


def test_the_rules_of_a_pool_share_its_budget_and_one_with_a_budget_has_its_own() -> None:
    text = configured({}, {"retry": {"budget": {"ratio": 0.5}}})
    plans = build_plans(parse_config(text), Tally(), lambda: 0.0)
    assert plans.of("other", "p").budget is plans.of("default", "p").budget
    assert plans.of("mine", "p").budget is not plans.of("other", "p").budget
    assert plans.of("other", "q").budget is not plans.of("other", "p").budget


def test_budgets_are_shares_of_what_was_answered() -> None:
    tally = Tally()
    budget = {"ratio": 0.1, "min_per_s": 0}
    text = configured({"retry": {"budget": budget}}, {"retry": {"budget": budget}})
    plans = build_plans(parse_config(text), tally, lambda: 0.0)
    of_pool, of_rule = plans.of("default", "p").budget, plans.of("mine", "p").budget
    pool = Pool("p", ())
    for rule, count in (("mine", 20), ("default", 30)):
        decision = Decision(pool, rule)
        for _ in range(count):
            tally.finished(decision, 200, False, 0.01)
    assert (of_pool.left, of_rule.left) == (pytest.approx(5), pytest.approx(2))


@pytest.mark.parametrize(
    ("pool", "rule", "more", "deadlines", "hedges"),
    [
        ({}, {}, {}, False, False),
        ({"deadline_s": 1}, {}, {}, True, False),
        ({}, {"deadline_s": 1}, {}, True, False),
        ({}, {}, {"deadlines": {"header": "x-time"}}, True, False),
        ({"hedge": {}}, {}, {}, False, True),
        ({}, {"hedge": {}}, {}, False, True),
    ],
)
def test_it_is_known_whether_there_is_anything_to_look_after(
    pool: dict[str, Any], rule: dict[str, Any], more: dict[str, Any], deadlines: bool, hedges: bool
) -> None:
    plans = build_plans(parse_config(configured(pool, rule, **more)), Tally(), lambda: 0.0)
    assert (plans.has_deadlines, plans.has_hedges) == (deadlines, hedges)


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({"retry": {"attempts": 0}}, "attempts: expected a number of at least 1, found 0"),
        ({"retry": {"attempts": 11}}, "attempts: expected a number of at most 10, found 11"),
        ({"retry": {"on": ["http_418"]}}, "on[0]: expected 'connect', 'stale', 'reset', 'timeout', 'http_429'"),
        ({"retry": {"budget": {"ratio": 1.5}}}, "ratio: expected a number of at most 1, found 1.5"),
        ({"retry": {"back_off": {"factor": 0.5}}}, "factor: expected a number of at least 1, found 0.5"),
        ({"retry": {"tries": 2}}, "tries: expected one of attempts, on, budget, back_off, max_retry_after_s"),
        (
            {"hedge": {"after_s": "p5"}},
            "after_s: expected a number of seconds above 0, or a percentile from p50 to p99",
        ),
        ({"hedge": {"after_s": 0}}, "after_s: expected a number of seconds above 0, or a percentile from p50 to p99"),
        (
            {"hedge": {"after_s": True}},
            "after_s: expected a number of seconds above 0, or a percentile from p50 to p99",
        ),
        ({"deadline_s": 0}, "deadline_s: expected a number above 0, found 0"),
    ],
)
def test_a_mistake_is_named(pool: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(configured(pool))
    assert said in str(caught.value)
