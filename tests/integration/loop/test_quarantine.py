"""What clients of a quarantined signature are told, and where their requests go."""

import json
from datetime import datetime
from typing import Any

import pytest

from gateway.breaker.record import Kind
from tests.integration.gateway.harness import CHAT, PLAIN, error_of, stream
from tests.integration.loop.harness import (
    BUDGET_US,
    COMPILE_MS,
    COSTLY,
    HARD_US,
    KINDS,
    Stage,
    pool_of,
    stage,
    street,
)
from tests.integration.loop.test_trips import Told, steps
from tests.integration.wire.harness import until

REFUSE = {"interactive": {"breaker": {"on_open": "refuse"}}}


async def tripped(on: Stage, told: Told, **extra: Any) -> None:
    await on.chat(**extra)
    told(on.interactive.says, on.interactive.rids[-1])
    await until(lambda: on.signature(**extra) in on.barred)


SAID: dict[str, tuple[Told, dict[str, Any], list[str]]] = {
    "steps": (
        steps(1100, 1500, 1200),
        {"cause": "over_budget", "observed": 1500, "limit": BUDGET_US, "unit": "us", "times_over": 1.5, "count": 3},
        ["3 steps", "1.5 ms", "1.5 times the budget of 1 ms", "grammar_fill", "make the grammar cheaper"],
    ),
    "hard limit": (
        steps(HARD_US * 4, kind="stop"),
        {"cause": "hard_limit", "observed": HARD_US * 4, "limit": HARD_US, "unit": "us", "times_over": 4.0},
        ["80 ms", "4 times the hard limit", "20 ms", "fewer and shorter stop strings"],
    ),
    "compile": (
        lambda feed, rid: feed.compiled(rid, COMPILE_MS * 3),
        {"cause": "compile", "observed": COMPILE_MS * 3, "limit": COMPILE_MS, "unit": "ms", "times_over": 3.0},
        ["1.5 s to compile", "3 times the limit", "500 ms", "make the grammar smaller"],
    ),
}


@pytest.mark.parametrize("what", SAID)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_refusal_says_what_was_over_which_limit_by_how_much_and_what_to_do(what: str, streams: bool) -> None:
    told, details, words = SAID[what]
    async with stage(options=REFUSE, breaker={"back_off": {"first_s": 40}}) as on:
        await tripped(on, told, **COSTLY)
        asked = len(on.asked)
        answer = await on.chat(**COSTLY, stream=streams)
        assert answer.status == 429
        assert answer.header(b"content-type") == b"application/json"
        assert 30 <= int(answer.header(b"retry-after") or 0) <= 40
        assert pool_of(answer) == "interactive"
        assert answer.header(b"x-steplane-route") == b"default"
        assert answer.header(b"x-request-id")
        assert answer.header(b"x-steplane-replica") is None
        error = error_of(answer)
        assert (error["type"], error["code"]) == ("invalid_request_error", "quarantined")
        for word in (*words, on.signature(**COSTLY)):
            assert word in error["message"]
        assert details.items() <= error["details"].items()
        assert error["details"]["signature"] == on.signature(**COSTLY)
        assert error["details"]["advice"] in error["message"]
        since, until_ = (datetime.fromisoformat(error["details"][key]) for key in ("since", "until"))
        assert 39 <= (until_ - since).total_seconds() <= 41
        assert len(on.asked) == asked


async def test_a_refusal_is_of_its_signature_alone() -> None:
    async with stage(options=REFUSE) as on:
        await tripped(on, steps(HARD_US * 2), **COSTLY)
        for extra in ({}, *KINDS[1:]):
            answer = await on.chat(**extra)
            assert (answer.status, pool_of(answer)) == (200, "interactive")
        assert (await on.chat(**COSTLY)).status == 429


async def test_spelling_it_otherwise_does_not_help() -> None:
    async with stage(options=REFUSE) as on:
        await tripped(on, steps(HARD_US * 2), **COSTLY)
        body = json.dumps(PLAIN[CHAT])[:-1]
        for spelled in (
            '"stop":["!!"]}',
            '"s\\u0074op":["@@"]}',
            '"stop":null,"stop":["@@"]}',
            '"stop":"@@"}',
            '"temperature":0.3,"max_tokens":7,"stop":["@@"]}',
        ):
            answer = await on.ask(CHAT, f"{body},{spelled}".encode())
            assert answer.status == 429, spelled


async def test_without_a_quarantine_pool_a_tripped_signature_is_refused() -> None:
    async with stage(street(quarantine=False)) as on:
        await tripped(on, steps(HARD_US * 2), **COSTLY)
        answer = await on.chat(**COSTLY)
        assert (answer.status, error_of(answer)["code"]) == (429, "quarantined")
        assert (await on.chat()).status == 200


async def test_with_the_quarantine_pool_down_there_is_503_and_the_pool_of_its_rule_is_left_alone() -> None:
    async with stage() as on:
        await tripped(on, steps(HARD_US * 2), **COSTLY)
        await on.quarantine.stop()
        asked = len(on.interactive.asked)
        first = await on.chat(**COSTLY)
        assert first.status in (502, 503)  # the first one finds out
        for _ in range(3):
            answer = await on.chat(**COSTLY)
            assert (answer.status, error_of(answer)["code"]) == (503, "pool_unavailable")
            assert int(answer.header(b"retry-after") or 0) >= 1
        assert len(on.interactive.asked) == asked


async def test_what_the_rules_send_to_quarantine_goes_there_whatever_its_breaker_says() -> None:
    rules = [{"name": "many", "when": {"n": ">= 4"}, "pool": "quarantine"}]
    async with stage(rules=rules, options=REFUSE) as on:
        extra = {"n": 4, "stop": ["@@"]}
        on.trust.add(Kind.signature, on.signature(**extra), "kim", "bad")
        answer = await on.chat(**extra)
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        assert answer.header(b"x-steplane-route") == b"many"


async def test_a_quarantined_stream_is_a_stream() -> None:
    async with stage() as on:
        await tripped(on, steps(HARD_US * 2), **COSTLY)
        on.quarantine.answer = stream
        answer = await on.chat(**COSTLY, stream=True)
        assert (answer.status, pool_of(answer)) == (200, "quarantine")
        assert answer.body == b'data: {"n":1}\n\ndata: [DONE]\n\n'


async def test_what_a_person_quarantined_says_who_and_why_and_released_it_goes_its_old_way_at_once() -> None:
    async with stage(options=REFUSE) as on:
        signature = on.signature(**COSTLY)
        on.trust.pin(Kind.signature, signature, "kim", "melts gpu-1")
        answer = await on.chat(**COSTLY)
        assert answer.status == 429
        error = error_of(answer)
        assert "melts gpu-1" in error["message"]
        assert error["details"]["cause"] == "manual"
        on.trust.release(Kind.signature, signature, "kim", "gpu-1 is new")
        answer = await on.chat(**COSTLY)
        assert (answer.status, pool_of(answer)) == (200, "interactive")
