"""What `explain` says of rules with shares, schedules, CEL and actions, on paper and by the admin port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.control.assembly import build_router
from gateway.control.classifier import build_classifier
from gateway.control.config import parse_config
from gateway.control.explain import Asked, Explanation, explain
from gateway.routing.router import Router
from tests.unit.control.admins import Admin, running_admin

CONFIG = parse_config("""
default_pool: a
pools:
  a: {replicas: [http://h:1]}
  b: {replicas: [http://h:2]}
rules:
  - {name: gold, when: {headers: {x-tier: gold*}}, pool: b}
  - {name: debug, when: {query: {debug: "1"}}, pool: b}
  - {name: acme, when: {tenant: acme}, pool: b}
  - {name: cel, when: "n > 1 && model == 'm'", pool: b}
  - {name: no, when: {grammar: ebnf}, reject: {status: 422, message: no grammars}}
  - name: capped
    when: {top_logprobs: ">5"}
    pool: a
    cap: {top_logprobs: 5, max_tokens: 100}
    strip: [logit_bias]
    set_headers: {authorization: secret}
    strip_headers: [cookie]
    response_headers: {x-seen: "yes"}
    shadow: {pool: b}
  - {name: half, weight: 50, pool: b}
""")


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as admin:
        yield admin


@pytest.fixture
def router() -> Router:
    return build_router(CONFIG, available=True)


def explained(router: Router, *, path: str = "/v1/chat/completions", tenant: str = "", **body: Any) -> Explanation:
    headers = tuple(body.pop("headers", {}).items())
    raw = json.dumps({"model": "m", "messages": [], **body}).encode()
    return explain(router, build_classifier(CONFIG), CONFIG.hookcost, Asked(path, raw, "POST", tenant, headers))


@pytest.mark.parametrize(
    ("asked", "route", "why"),
    [
        ({"headers": {"X-Tier": "gold-1"}}, "gold", "headers.x-tier is gold-1 (the rule wants headers.x-tier: gold*)"),
        ({"path": "/v1/chat/completions?debug=1"}, "debug", "query.debug is 1"),
        ({"tenant": "acme"}, "acme", "tenant is acme"),
        ({"n": 2}, "cel", "cel is model m, n 2 (the rule wants cel: n > 1 && model == 'm')"),
    ],
)
def test_it_goes_by_headers_query_tenant_and_cel(router: Router, asked: dict[str, Any], route: str, why: str) -> None:
    found = explained(router, **asked)

    assert (found["pool"], found["route"]) == ("b", route)
    assert why in found["why"]


def test_it_says_of_every_rule_why_it_did_not_match(router: Router) -> None:
    rules = explained(router, top_logprobs=6, logprobs=True)["rules"]

    assert [(rule["rule"], rule["matched"]) for rule in rules] == [
        *((name, False) for name in ("gold", "debug", "acme", "cel", "no")),
        ("capped", True),
    ]
    assert list(rules[0]["conditions"]) == [
        {"key": "headers.x-tier", "wanted": "gold*", "actual": None, "holds": False}
    ]
    assert rules[3]["conditions"][0]["actual"] == {"model": "m", "n": 1}


def test_it_says_what_would_be_changed_and_keeps_the_values_of_headers_to_itself(router: Router) -> None:
    found = explained(router, top_logprobs=20, logprobs=True, max_tokens=500, logit_bias={"1": 2})
    as_sent = explained(router, top_logprobs=5, logprobs=True, max_tokens=100)

    assert found["changes"] == {
        "body": ["top_logprobs=5", "max_tokens=100", "logit_bias=removed"],
        "signature": as_sent["signature"],
        "step_us": as_sent["cost"]["step_us"],
        "compile_ms": as_sent["cost"]["compile_ms"],
        "set_headers": ["authorization"],
        "strip_headers": ["cookie"],
        "response_headers": {"x-seen": "yes"},
        "shadow": "b",
    }
    assert found["cost"]["step_us"] > as_sent["cost"]["step_us"]
    assert "secret" not in json.dumps(found)
    assert explained(router)["changes"] is None


def test_a_rule_that_refuses_is_the_rejection(router: Router) -> None:
    found = explained(router, ebnf='root ::= "a"')

    assert (found["pool"], found["route"]) == (None, "no")
    assert found["rejection"]["status"] == 422
    assert found["why"].endswith("rejected with 422: no grammars")
    assert found["rules"][-1]["pool"] is None


def test_looking_at_a_share_takes_no_turn_and_agrees_with_what_comes_next(router: Router) -> None:
    for _ in range(10):
        first, second = explained(router), explained(router)
        assert first["route"] == second["route"]
        request_rule = router.rules[-2].conditions[0]
        assert first["rules"][-2 if first["route"] == "default" else -1]["conditions"][0]["actual"] == "by turns"
        turn = request_rule.expression.constants[0]
        assert turn.turn() is (first["route"] == "half")  # type: ignore[attr-defined]


async def test_the_admin_port_takes_headers_and_a_tenant(admin: Admin) -> None:
    query = {"header": ["x-tier: gold", "accept: a"], "tenant": "acme"}
    found = await admin.client.post("/api/v1/explain", params=query, json={"messages": []})
    refused = await admin.client.post("/api/v1/explain", params={"header": "nonsense"}, json={"messages": []})

    assert found.status_code == 200
    assert found.json()["route"]
    assert refused.status_code == 400
    assert "expected `name: value`, found 'nonsense'" in refused.json()["error"]["message"]
