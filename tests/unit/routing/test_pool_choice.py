"""Which pool of a rule's chain may take a request, and which of several competing ones goes first."""

import pytest

from gateway.hookcost import Classification, Features, Grammar, HookCost
from gateway.routing.capabilities import Capabilities
from gateway.routing.cheapest import cheapest_first
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.request import RouteRequest
from gateway.routing.router import Decision, Router
from gateway.routing.rule import Rule
from gateway.routing.settings import PoolSettings, Reject, Spill


def pool(
    name: str,
    *,
    spill: str | None = None,
    can: Capabilities | None = None,
    backend: str | None = None,
    load: int = 0,
    up: bool = True,
) -> Pool:
    when = Reject() if spill is None else Spill(spill)
    replica = Replica(name, f"http://{name}:1", name, 1, available=up)
    made = Pool(name, (replica,), when_unavailable=when, capabilities=can, backend=backend)
    for _ in range(load):
        made.book(replica)
    return made


def router(*pools: Pool, cheapest: tuple[str, ...] = (), quarantine: str | None = None) -> Router:
    named = {each.name: each for each in pools}
    rules = [Rule("group", cheapest[0], cheapest=cheapest)] if cheapest else []
    return Router(rules, named, pools[0].name, quarantine)


def request(costs: dict[str, HookCost] | None = None, **features: object) -> RouteRequest:
    cost = next(iter(costs.values())) if costs else HookCost()
    return RouteRequest(
        "POST", "/v1/chat/completions", Classification(Features(**features), cost, "s1-0", "", costs or {})
    )


def went(decision: Decision) -> str:
    if decision.pool is not None:
        return decision.pool.name
    assert decision.rejection is not None
    return f"{decision.rejection.status} {decision.rejection.code}"


NO_GRAMMAR = Capabilities(grammar=False)


@pytest.mark.parametrize(
    ("can", "features", "answer"),
    [
        (None, {"grammar": Grammar.json_schema}, None),
        (Capabilities(), {"grammar": Grammar.json_schema, "top_logprobs": 50, "model": "any"}, None),
        (NO_GRAMMAR, {"grammar": Grammar.json_schema}, "400 grammar_unsupported"),
        (NO_GRAMMAR, {"grammar": Grammar.tools}, "400 grammar_unsupported"),
        (NO_GRAMMAR, {}, None),
        (Capabilities(logprobs=False), {"logprobs": True}, "400 logprobs_unsupported"),
        (Capabilities(logprobs=False), {"top_logprobs": 1}, "400 logprobs_unsupported"),
        (Capabilities(logprobs=False), {"prompt_logprobs": 0}, None),
        (Capabilities(prompt_logprobs=False), {"prompt_logprobs": 0}, "400 prompt_logprobs_unsupported"),
        (Capabilities(max_top_logprobs=20), {"top_logprobs": 21}, "400 too_many_logprobs"),
        (Capabilities(max_top_logprobs=20), {"prompt_logprobs": 21}, "400 too_many_logprobs"),
        (Capabilities(max_top_logprobs=20), {"top_logprobs": 20}, None),
        (Capabilities(models=frozenset({"m"})), {"model": "m"}, None),
        (Capabilities(models=frozenset({"m"})), {"model": None}, None),
        (Capabilities(models=frozenset({"m"})), {"model": "other"}, "404 model_not_found"),
        (Capabilities(models=frozenset({"m"}), lora=frozenset({"a"})), {"model": "a"}, None),
        (Capabilities(models=frozenset({"m"}), lora=frozenset({"a"})), {"model": "m:a"}, None),
        (Capabilities(models=frozenset({"m"}), lora=frozenset({"a"})), {"model": "m:b"}, "404 model_not_found"),
        (Capabilities(models=frozenset({"m"}), lora=frozenset({"a"})), {"model": "x:a"}, "404 model_not_found"),
    ],
)
def test_what_a_pool_can_not_take_is_answered_where_nobody_can(
    can: Capabilities | None, features: dict[str, object], answer: str | None
) -> None:
    assert went(router(pool("only", can=can)).decide(request(**features))) == (answer or "only")


def test_what_a_pool_can_not_take_goes_to_the_next_that_can() -> None:
    one = router(pool("draft", can=NO_GRAMMAR, spill="plain"), pool("plain"))
    structured = one.decide(request(grammar=Grammar.json_schema))
    assert went(structured) == "plain"
    assert structured.spilled_from == "draft"
    assert went(one.decide(request())) == "draft"


def test_a_pool_that_can_but_is_down_is_unavailable_and_not_unable() -> None:
    one = router(pool("draft", can=NO_GRAMMAR, spill="plain"), pool("plain", up=False))
    assert went(one.decide(request(grammar=Grammar.json_schema))) == "503 pool_unavailable"


def test_the_same_lack_has_one_decision_and_says_which_field_is_why() -> None:
    one = router(pool("only", can=Capabilities(models=frozenset({"m"}))))
    decisions = {one.decide(request(model=f"client's {at}")) for at in range(10)}
    assert len(decisions) == 1
    rejection = decisions.pop().rejection
    assert rejection is not None
    assert rejection.param == "model"
    assert "there are m" in rejection.message


def test_capabilities_that_change_hold_at_once() -> None:
    only = pool("only", can=Capabilities())
    one = router(only)
    assert went(one.decide(request(grammar=Grammar.ebnf))) == "only"
    only.reconfigure(PoolSettings(capabilities=NO_GRAMMAR))
    assert went(one.decide(request(grammar=Grammar.ebnf))) == "400 grammar_unsupported"


def test_quarantine_is_not_sent_what_would_kill_it() -> None:
    one = router(pool("main"), pool("q", can=NO_GRAMMAR), quarantine="q")
    structured, plain = request(grammar=Grammar.json_schema), request()
    assert went(one.quarantined(one.decide(structured), structured)) == "400 grammar_unsupported"
    assert went(one.quarantined(one.decide(plain), plain)) == "q"


DEAR, CHEAP, FREE = HookCost(600.0, 50.0), HookCost(2.0, 60.0), HookCost(0.0, 0.0)
REFUSED = HookCost(0.0, 0.0, refused="no lookaround")


@pytest.mark.parametrize(
    ("costs", "loads", "first"),
    [
        ({"xgrammar": DEAR, "llguidance": CHEAP}, (0, 9), "llg"),
        ({"xgrammar": CHEAP, "llguidance": DEAR}, (9, 0), "xg"),
        ({"xgrammar": DEAR, "llguidance": REFUSED}, (9, 0), "xg"),
        ({"xgrammar": REFUSED, "llguidance": DEAR}, (0, 9), "llg"),
        ({"xgrammar": CHEAP, "llguidance": CHEAP}, (1, 0), "llg"),
        ({"xgrammar": CHEAP, "llguidance": CHEAP}, (0, 1), "xg"),
        ({"xgrammar": HookCost(2.0, 60.0), "llguidance": HookCost(2.2, 62.0)}, (3, 0), "llg"),
        ({"xgrammar": REFUSED, "llguidance": REFUSED}, (0, 0), "xg"),
        (None, (1, 0), "llg"),
        (None, (0, 0), "xg"),
    ],
)
def test_the_cheapest_backend_that_supports_a_grammar_goes_first(
    costs: dict[str, HookCost] | None, loads: tuple[int, int], first: str
) -> None:
    xg = pool("xg", backend="xgrammar", load=loads[0])
    llg = pool("llg", backend="llguidance", load=loads[1])
    one = router(xg, llg, cheapest=("xg", "llg"))

    decision = one.decide(request(costs, grammar=Grammar.json_schema if costs else Grammar.none))

    assert went(decision) == first
    assert decision.spilled_from is None


def test_each_step_counts_for_a_long_reply_and_compiling_for_a_short_one() -> None:
    slow_steps, slow_compile = HookCost(1.0, 900.0), HookCost(200.0, 10.0)
    pools = [pool("xg", backend="xgrammar"), pool("llg", backend="llguidance")]
    costs = {"xgrammar": slow_steps, "llguidance": slow_compile}
    short = request(costs, max_tokens=20).classification
    long = request(costs, max_tokens=2000).classification
    assert [each.name for each in cheapest_first(pools, short)] == ["xg", "llg"]
    assert [each.name for each in cheapest_first(pools, long)] == ["llg", "xg"]


def test_a_pool_that_names_no_backend_runs_the_usual_one() -> None:
    pools = [pool("usual"), pool("llg", backend="llguidance")]
    found = cheapest_first(pools, request({"xgrammar": DEAR, "llguidance": CHEAP}).classification)
    assert [each.name for each in found] == ["llg", "usual"]


def test_another_of_the_group_stands_in_and_then_where_the_first_spills_to() -> None:
    xg = pool("xg", backend="xgrammar", spill="last")
    llg = pool("llg", backend="llguidance")
    one = router(pool("last"), xg, llg, cheapest=("xg", "llg"))
    asked = request({"xgrammar": DEAR, "llguidance": CHEAP}, grammar=Grammar.json_schema)

    assert went(one.decide(asked)) == "llg"
    llg.replicas[0].set_healthy(False)
    assert went(one.decide(asked)) == "xg"
    xg.replicas[0].set_healthy(False)
    last = one.decide(asked)
    assert (went(last), last.spilled_from) == ("last", "xg")
