from collections.abc import Callable

import pytest

from gateway.hookcost import Grammar
from gateway.routing.explanation import ConditionVerdict, RuleVerdict, explain_rules
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Router
from gateway.routing.rule import Rule, compile_rule
from gateway.routing.settings import Reject, Spill

MakeRequest = Callable[..., RouteRequest]


def pool_of(name: str, when_unavailable: Reject | Spill, *, up: bool = True) -> Pool:
    replica = Replica(f"{name}-1", "http://127.0.0.1:1", "127.0.0.1", 1, pool=name, available=up)
    return Pool(name, (replica,), when_unavailable=when_unavailable)


def router_with(rules: list[Rule] | None = None, down: tuple[str, ...] = ()) -> Router:
    pools = {
        "interactive": pool_of("interactive", Reject(), up="interactive" not in down),
        "grammar": pool_of("grammar", Spill("quarantine"), up="grammar" not in down),
        "quarantine": pool_of("quarantine", Reject(7), up="quarantine" not in down),
    }
    if rules is None:
        rules = [
            compile_rule("raw", "quarantine", {"grammar": ["ebnf", "regex"]}),
            compile_rule("heavy", "quarantine", {"grammar": "any", "step_us": ">2000"}),
            compile_rule("structured", "grammar", {"grammar": "any"}),
        ]
    return Router(rules, pools, "interactive")


@pytest.mark.parametrize(
    ("request_with", "rule", "pool"),
    [
        ({}, "default", "interactive"),
        ({"grammar": Grammar.regex, "step_us": 5000.0}, "raw", "quarantine"),
        ({"grammar": Grammar.json_schema, "step_us": 5000.0}, "heavy", "quarantine"),
        ({"grammar": Grammar.json_schema, "step_us": 200.0}, "structured", "grammar"),
        ({"step_us": 5000.0}, "default", "interactive"),
    ],
)
def test_the_first_rule_whose_conditions_all_hold_decides(
    make_request: MakeRequest, request_with: dict[str, object], rule: str, pool: str
) -> None:
    router = router_with()

    decision = router.decide(make_request(**request_with))

    assert decision.rule == rule
    assert decision.pool is router.pools[pool]
    assert decision.spilled_from is None
    assert decision.rejection is None


def test_without_rules_everything_goes_to_the_default_pool(make_request: MakeRequest) -> None:
    router = router_with([])

    assert router.decide(make_request(path="/v1/embeddings")).pool is router.pools["interactive"]


def test_a_pool_without_an_available_replica_spills_and_says_where_from(make_request: MakeRequest) -> None:
    router = router_with(down=("grammar",))

    decision = router.decide(make_request(grammar=Grammar.json_schema))

    assert decision.pool is router.pools["quarantine"]
    assert decision.rule == "structured"
    assert decision.spilled_from == "grammar"


def test_a_pool_that_rejects_says_when_to_come_back(make_request: MakeRequest) -> None:
    decision = router_with(down=("interactive",)).decide(make_request())

    assert decision.pool is None
    assert decision.rule == "default"
    assert decision.rejection is not None
    assert decision.rejection.status == 503
    assert decision.rejection.code == "pool_unavailable"
    assert decision.rejection.retry_after_s == 1
    assert "'interactive'" in decision.rejection.message


def test_a_spill_chain_without_any_replica_ends_as_its_last_pool_says(make_request: MakeRequest) -> None:
    decision = router_with(down=("grammar", "quarantine")).decide(make_request(grammar=Grammar.json_schema))

    assert decision.pool is None
    assert decision.rejection is not None
    assert decision.rejection.retry_after_s == 7
    assert decision.rejection.message == (
        "no replica of pool 'grammar' is available, nor of 'quarantine' that would stand in for it"
    )


def test_a_decision_follows_the_replicas_as_they_come_and_go(make_request: MakeRequest) -> None:
    router = router_with()
    request = make_request(grammar=Grammar.json_schema)
    replica = router.pools["grammar"].replicas[0]

    seen = []
    for available in (True, False, True):
        replica.set_healthy(available)
        pool = router.decide(request).pool
        seen.append(pool and pool.name)

    assert seen == ["grammar", "quarantine", "grammar"]


@pytest.mark.parametrize(
    ("pools", "rules", "default", "said"),
    [
        ({}, [], "nowhere", "no pool is named 'nowhere'"),
        ({"a": Reject()}, [Rule("r", "nowhere")], "a", "no pool is named 'nowhere'"),
        ({"a": Spill("nowhere")}, [], "a", "no pool is named 'nowhere'"),
        ({"a": Spill("b"), "b": Spill("a")}, [], "a", "the spills of pool 'a' come back to 'a'"),
        ({"a": Spill("a")}, [], "a", "the spills of pool 'a' come back to 'a'"),
    ],
)
def test_a_router_over_pools_that_lead_nowhere_is_not_built(
    pools: dict[str, Reject | Spill], rules: list[Rule], default: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Router(rules, {name: pool_of(name, unavailable) for name, unavailable in pools.items()}, default)


def test_an_explanation_lists_every_rule_up_to_the_match_with_what_was_seen(make_request: MakeRequest) -> None:
    router = router_with()

    verdicts = explain_rules(router.rules, make_request(grammar=Grammar.json_schema, step_us=300.0))

    assert verdicts == (
        RuleVerdict(
            "raw", "quarantine", False, (ConditionVerdict("grammar", ["ebnf", "regex"], Grammar.json_schema, False),)
        ),
        RuleVerdict(
            "heavy",
            "quarantine",
            False,
            (
                ConditionVerdict("grammar", "any", Grammar.json_schema, True),
                ConditionVerdict("step_us", ">2000", 300.0, False),
            ),
        ),
        RuleVerdict("structured", "grammar", True, (ConditionVerdict("grammar", "any", Grammar.json_schema, True),)),
    )


def test_an_explanation_of_what_no_rule_took_ends_with_the_default(make_request: MakeRequest) -> None:
    assert explain_rules(router_with().rules, make_request())[-1] == RuleVerdict("default", "interactive", True, ())
