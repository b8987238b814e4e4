"""What rules do to requests that really go through: where they send them, and what they change on the way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.hookcost.observation import Origin, StepObservation
from tests.integration.gateway.harness import (
    ANSWER,
    CHAT,
    COMPLETIONS,
    GENERATE,
    MESSAGES,
    PLAIN,
    RESPONSES,
    Engine,
    Held,
    error_of,
    hang_up,
    house,
    request,
    saying,
    three_pools,
)
from tests.integration.wire.harness import Message as Answer
from tests.integration.wire.harness import until


def header(message: Answer, name: str) -> str | None:
    """The value of a header of a message, None where there is none; a second one is a mistake."""
    values = [value for key, value in message.headers if key.lower() == name.encode()]
    assert len(values) <= 1, values
    return values[0].decode() if values else None


@pytest.mark.parametrize(
    ("when", "path", "lines", "matches"),
    [
        ({"headers": {"x-tier": "gold*"}}, CHAT, ["X-Tier: gold-2"], True),
        ({"headers": {"x-tier": "gold*"}}, CHAT, ["x-tier: silver"], False),
        ({"headers": {"x-tier": "gold*"}}, CHAT, [], False),
        ({"headers": {"x-tier": False}}, CHAT, [], True),
        ({"query": {"debug": "1"}}, f"{CHAT}?a=b&debug=1", [], True),
        ({"query": {"debug": "1"}}, f"{CHAT}?debug=%31", [], True),
        ({"query": {"debug": "1"}}, CHAT, [], False),
        ({"tenant": "acme"}, CHAT, ["x-tenant: acme"], True),
        ({"tenant": "acme"}, CHAT, ["x-tenant: other"], False),
        ({"cel": "headers['x-tier'] == 'gold' && request.grammar == 'none'"}, CHAT, ["x-tier: gold"], True),
        ({"cel": "headers['x-tier'] == 'gold'"}, CHAT, [], False),
        ("tenant == 'acme' && prompt_tokens < 10", CHAT, ["x-tenant: acme"], True),
        ({"tenant": "acme"}, "/v1/models", ["x-tenant: acme"], True),
    ],
)
async def test_a_rule_goes_by_headers_query_and_tenant(
    when: object, path: str, lines: list[str], matches: bool
) -> None:
    rules = [{"name": "special", "when": when, "pool": "grammar"}]
    async with house(rules=rules, config={"tenants": {"header": "x-tenant"}}) as running:
        for _ in range(2):  # the second time from what is remembered of the head
            answer = await running.ask(path, PLAIN[CHAT], *lines)
            assert (header(answer, "x-steplane-route") == "special") is matches


async def test_lines_that_are_new_each_time_are_read_each_time() -> None:
    rules = [{"name": "odd", "when": {"headers": {"x-turn": ["1", "3", "5"]}}, "pool": "grammar"}]
    async with house(rules=rules) as running:
        client = await running.client()
        for turn in range(6):
            answer = await client.ask(request(CHAT, PLAIN[CHAT], f"x-turn: {turn}"))
            assert (header(answer, "x-steplane-route") == "odd") is (turn % 2 == 1)


async def test_a_rule_refuses_with_its_status_and_message() -> None:
    reject = {"status": 451, "message": "no images here", "retry_after_s": 60}
    rules = [{"name": "no", "when": {"stream": True}, "reject": reject}]
    async with house(rules=rules) as running:
        answer = await running.ask(CHAT, {**PLAIN[CHAT], "stream": True})

        assert answer.status == 451
        assert (error_of(answer)["message"], error_of(answer)["code"]) == ("no images here", "rejected_by_rule")
        assert header(answer, "retry-after") == "60"
        assert header(answer, "x-steplane-route") == "no"
        assert running.asked == []
        assert await running.metric("steplane_rule_matches_total", rule="no") == 1
        assert await running.metric("steplane_rule_matches_total", rule="default") == 0


async def test_fallbacks_stand_in_one_after_the_other() -> None:
    rules = [{"name": "r", "pool": "interactive", "fallbacks": ["grammar", "quarantine"]}]
    async with house(rules=rules, down=("interactive", "grammar")) as running:
        answer = await running.ask(CHAT, PLAIN[CHAT])  # finds out that the first is down
        assert answer.status in (200, 502)
        await until(lambda: not running.available("interactive-0"))
        answer = await running.ask(CHAT, PLAIN[CHAT])
        await until(lambda: not running.available("grammar-0"))
        answer = await running.ask(CHAT, PLAIN[CHAT])

        assert answer.status == 200
        assert header(answer, "x-steplane-pool") == "quarantine"


async def test_headers_of_the_request_are_set_and_stripped_and_others_stay_as_they_came() -> None:
    rule = {
        "name": "r",
        "pool": "interactive",
        "set_headers": {"x-team": "search", "User-Agent": "us"},
        "strip_headers": ["x-secret"],
        "response_headers": {"x-served-by": "steplane"},
    }
    async with house(rules=[rule]) as running:
        lines = ["X-Secret: s", "user-agent: curl", "x-kept:  as it came", "x-team: mine"]
        for _ in range(2):
            answer = await running.ask(CHAT, PLAIN[CHAT], *lines)
            assert header(answer, "x-served-by") == "steplane"
        for asked in running.asked:
            assert header(asked, "x-secret") is None
            assert header(asked, "user-agent") == "us"
            assert header(asked, "x-team") == "search"
            assert header(asked, "x-kept") == "as it came"


@pytest.mark.parametrize(
    ("path", "body", "sent", "modified"),
    [
        (CHAT, b'{"model": "m", "messages": [], "max_tokens":  4096}', b'"max_tokens":  1024', "max_tokens=1024"),
        (CHAT, b'{"messages": [], "max_completion_tokens":2000}', b'"max_completion_tokens":1024', None),
        (COMPLETIONS, b'{"prompt": "x", "max_tokens": 9999 }', b'{"prompt": "x", "max_tokens": 1024 ', None),
        (RESPONSES, b'{"input": "x", "max_output_tokens": 9999}', b'"max_output_tokens": 1024', None),
        (MESSAGES, b'{"messages": [], "max_tokens": 9999}', b'"max_tokens": 1024', None),
        (GENERATE, b'{"text": "x", "sampling_params": {"max_new_tokens": 5000}}', b'{"max_new_tokens": 1024}', None),
        (CHAT, b'{"messages": [], "logit_bias": {"5": 1}, "n": 1}', b'{"messages": [], "n": 1', "logit_bias=removed"),
        (CHAT, b'{"messages": [], "top_logprobs": 50, "logprobs": true}', b'"top_logprobs": 5, "l', "top_logprobs=5"),
    ],
)
async def test_parameters_are_limited_or_taken_out_and_all_other_bytes_stay(
    path: str, body: bytes, sent: bytes, modified: str | None
) -> None:
    rule = {
        "name": "r",
        "pool": "interactive",
        "cap": {"max_tokens": 1024, "top_logprobs": 5},
        "strip": ["logit_bias"],
    }
    async with house(rules=[rule]) as running:
        answer = await running.ask(path, body)

        assert answer.status == 200
        (asked,) = running.asked
        assert sent in asked.body
        json.loads(asked.body)
        said = header(answer, "x-steplane-modified")
        assert said is not None
        assert said.endswith("1024") if modified is None else said == modified


async def test_a_body_within_the_limits_goes_on_as_it_came_and_nothing_is_said() -> None:
    rule = {"name": "r", "pool": "interactive", "cap": {"max_tokens": 1024}, "strip": ["logit_bias"]}
    engine = Engine("a")
    async with house({"interactive": [engine]}, options={"interactive": {"engine": "vllm"}}, rules=[rule]) as running:
        body = b'{"model":"m",  "messages":[],"max_tokens":5}'
        answer = await running.ask(CHAT, body)

        assert engine.asked[0].body == body
        assert header(answer, "x-steplane-modified") is None


async def test_an_edited_body_is_sent_again_at_a_retry_and_booked_by_what_it_costs_then() -> None:
    rule = {"name": "r", "when": {"top_logprobs": ">20"}, "pool": "interactive", "cap": {"top_logprobs": 1}}
    engines = [Engine("a", hang_up), Engine("b")]
    async with house({"interactive": engines}, rules=[rule]) as running:
        for _ in range(2):
            answer = await running.ask(CHAT, {**PLAIN[CHAT], "logprobs": True, "top_logprobs": 100})
            assert answer.status == 200
            assert header(answer, "x-steplane-route") == "r"
        assert all(json.loads(asked.body)["top_logprobs"] == 1 for asked in running.asked)
        assert all(replica.booked == 0 and replica.booked_us == 0.0 for replica in running.replicas)


async def test_what_is_edited_is_booked_at_the_cost_of_what_is_sent() -> None:
    rule = {"name": "r", "pool": "interactive", "cap": {"top_logprobs": 1}}
    held = Held(end=ANSWER)
    async with house({"interactive": [Engine("a", held)]}, rules=[rule]) as running:
        (replica,) = running.replicas
        body = {**PLAIN[CHAT], "logprobs": True}
        asked_us, sent_us = [
            (await running.post("/api/v1/explain", {**body, "top_logprobs": k}))["cost"]["step_us"] for k in (50, 1)
        ]
        asking = asyncio.ensure_future(running.ask(CHAT, {**body, "top_logprobs": 50}))
        await until(held.arrived.is_set)
        assert replica.booked_us == pytest.approx(sent_us)
        assert sent_us < asked_us
        held.finish.set()
        assert (await asking).status == 200
        assert replica.booked_us == 0.0


async def test_a_weight_takes_its_share_and_the_rest_goes_on() -> None:
    rules = [{"name": "canary", "pool": "grammar", "weight": 25}, {"name": "rest", "pool": "interactive"}]
    async with house(rules=rules) as running:
        client = await running.client()
        routes = [header(await client.ask(request(CHAT, PLAIN[CHAT])), "x-steplane-route") for _ in range(100)]
        assert 23 <= routes.count("canary") <= 27


async def test_a_sticky_weight_takes_a_tenant_always_or_never() -> None:
    rules = [{"name": "canary", "pool": "grammar", "weight": 50, "sticky": "x-user"}]
    async with house(rules=rules) as running:
        taken = 0
        for user in range(20):
            routes = {
                header(await running.ask(CHAT, PLAIN[CHAT], f"x-user: u{user}"), "x-steplane-route") for _ in range(3)
            }
            assert len(routes) == 1
            taken += routes == {"canary"}
        assert 2 <= taken <= 18


async def test_a_copy_goes_to_another_pool_and_its_answer_to_nobody() -> None:
    rules = [{"name": "r", "pool": "interactive", "shadow": {"pool": "grammar"}}]
    async with house(rules=rules) as running:
        shadow = running.engines["grammar-0"]
        shadow.answer = saying(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\nno")
        answer = await running.ask(f"{CHAT}?x=1", PLAIN[CHAT], "x-kept: yes")

        assert answer.status == 200
        assert answer.body == b'{"ok":true}'
        await running.reaches("steplane_shadow_requests_total", 1, pool="grammar", outcome="5xx")
        (copied,) = shadow.asked
        assert copied.start.startswith(b"POST /v1/chat/completions?x=1 ")
        assert json.loads(copied.body) == PLAIN[CHAT]
        assert header(copied, "x-kept") == "yes"
        assert header(copied, "x-steplane-shadow") == "1"
        assert await running.metric("steplane_requests_total", pool="grammar") == 0


async def test_a_silent_shadow_holds_up_nobody_is_bounded_and_is_given_up() -> None:
    shadow = {"pool": "grammar", "max_running": 2, "timeout_s": 0.2}
    rules = [{"name": "r", "pool": "interactive", "shadow": shadow}]
    held = Held()
    async with house(rules=rules) as running:
        running.engines["grammar-0"].answer = held
        for _ in range(5):
            assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        await until(held.left.is_set)
        await running.reaches("steplane_shadow_requests_total", 5)
        sent = await running.metric("steplane_shadow_requests_total", outcome="timeout")
        left_out = await running.metric("steplane_shadow_requests_total", outcome="too_many")
        assert sent >= 2
        assert sent + left_out == 5


async def test_copies_that_still_run_end_with_the_gateway() -> None:
    rules = [{"name": "r", "pool": "interactive", "shadow": {"pool": "grammar"}}]
    held = Held()
    async with house(rules=rules) as running:
        running.engines["grammar-0"].answer = held
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        await until(held.arrived.is_set)
        await running.gateway.close()
        await until(held.left.is_set)


async def test_what_cel_cannot_evaluate_does_not_match_and_is_counted() -> None:
    rules: list[dict[str, Any]] = [
        {"name": "absent", "when": "max_tokens > 5", "pool": "grammar"},
        {"name": "divided", "when": "10 / (n - 1) > 1", "pool": "grammar"},
    ]
    async with house(rules=rules) as running:
        assert header(await running.ask(CHAT, PLAIN[CHAT]), "x-steplane-route") == "default"
        assert await running.metric("steplane_rule_errors_total", rule="absent", reason="absent") == 1
        assert await running.metric("steplane_rule_errors_total", rule="divided", reason="failed") == 1
        answer = await running.ask(CHAT, {**PLAIN[CHAT], "max_tokens": 6})
        assert header(answer, "x-steplane-route") == "absent"


async def test_a_rule_knows_what_is_quarantined_and_what_was_observed() -> None:
    rules: list[dict[str, Any]] = [
        {"name": "barred", "when": {"quarantined": True}, "reject": {"status": 403, "message": "not now"}},
        {"name": "seen", "when": {"observed_step_us": ">1000"}, "pool": "grammar"},
    ]
    async with house(three_pools(), rules=rules) as running:
        body = {**PLAIN[CHAT], "logprobs": True, "top_logprobs": 3}
        assert header(await running.ask(CHAT, body), "x-steplane-route") == "default"
        knows = running.gateway.router.knows
        signature = (await running.post("/api/v1/explain", body))["signature"]
        assert knows.observed_step_us(signature) == -1.0

        _observe(running, signature)
        assert header(await running.ask(CHAT, body), "x-steplane-route") == "seen"
        await running.quarantine(signature)
        assert (await running.ask(CHAT, body)).status == 403


def _observe(running: Any, signature: str) -> None:
    origin = Origin(
        request_id="r",
        signature=signature,
        tenant="",
        pool="interactive",
        replica="interactive-0",
        budget_us=None,
        hard_limit_us=None,
        costly=True,
    )
    running.gateway._oversight.book.observe_step(StepObservation(origin, 0.0, 5000.0, {"logprobs": 5000.0}))


async def test_a_tenant_that_may_not_use_a_pool_never_gets_there_by_a_share_of_it() -> None:
    rules = [{"name": "canary", "pool": "grammar", "weight": 50}]
    tenants = {"header": "x-tenant", "named": {"acme": {"pools": ["interactive"]}}}
    async with house(rules=rules, config={"tenants": tenants}) as running:
        statuses = [(await running.ask(CHAT, PLAIN[CHAT], "x-tenant: acme")).status for _ in range(20)]

        assert set(statuses) == {200, 403}
        assert running.engines["grammar-0"].asked == []
