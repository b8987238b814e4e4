"""What `POST /api/v1/explain` says on a gateway that has seen something."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from gateway.breaker.record import Kind
from tests.unit.control.admins import Admin, running_admin

PLAIN = {"messages": []}
GRAMMAR = {"messages": [], "response_format": {"type": "json_object"}}
LOGPROBS = {"messages": [], "logprobs": True, "top_logprobs": 5}


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as running:
        running.admit("i1", "g1", "q1")
        yield running


async def explained(admin: Admin, body: object, **query: str) -> Any:
    reply = await admin.client.post("/api/v1/explain", params=query, content=orjson.dumps(body))
    assert reply.status_code == 200
    return reply.json()


async def test_a_quarantined_signature_goes_to_the_quarantine_pool_and_the_reason_is_said(admin: Admin) -> None:
    before = await explained(admin, LOGPROBS)
    admin.trip(before["signature"])

    after = await explained(admin, LOGPROBS)

    assert (before["pool"], before["quarantine"], before["quarantined_from"]) == ("interactive", None, None)
    assert (after["pool"], after["quarantined_from"], after["rejection"]) == ("quarantine", "interactive", None)
    assert after["quarantine"].items() >= {"state": "open", "cause": "over_budget", "times_over": 2.6}.items()
    assert "are quarantined since 1970-01-12" in after["why"]


async def test_a_pool_that_refuses_what_is_quarantined_answers_429_with_the_wait(admin: Admin) -> None:
    admin.trip((await explained(admin, GRAMMAR))["signature"])
    admin.now_s += 10

    after = await explained(admin, GRAMMAR)

    assert (after["pool"], after["quarantined_from"]) == (None, "grammar")
    assert after["rejection"].items() >= {"status": 429, "code": "quarantined", "retry_after_s": 20}.items()
    assert "pool 'grammar' refuses what is quarantined with 429" in after["why"]


async def test_a_quarantined_tenant_is_judged_by_what_it_asks_for(admin: Admin) -> None:
    admin.context.trust.pin(Kind.tenant, "acme", "sre", "floods us")

    assert (await explained(admin, LOGPROBS, tenant="acme"))["pool"] == "quarantine"
    assert (await explained(admin, LOGPROBS, tenant="acme"))["quarantine"]["tenant"] == "acme"
    assert (await explained(admin, PLAIN, tenant="acme"))["pool"] == "interactive"
    assert (await explained(admin, PLAIN, tenant="acme"))["quarantine"] is None
    assert (await explained(admin, LOGPROBS, tenant="other"))["pool"] == "interactive"


async def test_rules_see_what_was_observed_as_they_do_for_a_real_request() -> None:
    config = """
default_pool: interactive
pools:
  interactive: {replicas: [{url: "http://127.0.0.1:1", name: i1}]}
  grammar: {replicas: [{url: "http://127.0.0.1:2", name: g1}]}
rules: [{name: dear, when: {step_us: ">3000"}, pool: grammar}]
"""
    async with running_admin(config) as admin:
        admin.admit("i1", "g1")
        before = await explained(admin, LOGPROBS)
        admin.observe(*[4000.0] * 500, signature=before["signature"])

        after = await explained(admin, LOGPROBS)

    assert (before["route"], after["route"]) == ("default", "dear")
    assert after["predicted"] == before["predicted"] == before["cost"]
    assert after["cost"]["step_us"] > 3000


async def test_to_explain_a_signature_on_trial_does_not_use_up_its_probe(admin: Admin) -> None:
    signature = (await explained(admin, LOGPROBS))["signature"]
    admin.trip(signature)
    admin.now_s += 31
    admin.context.trust.tick()

    explanation = await explained(admin, LOGPROBS)

    assert explanation["quarantine"]["state"] == "half_open"
    cost = admin.context.classifier.classify("/v1/chat/completions", orjson.dumps(LOGPROBS)).cost
    verdict = admin.context.trust.verdict(signature, "", cost)
    assert verdict is not None
    assert verdict.probe is not None
