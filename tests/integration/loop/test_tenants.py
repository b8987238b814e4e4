"""Tenants: whose signatures trip one after the other has to answer for the rest of them, and nobody else does."""

from typing import Any

import pytest

from gateway.breaker.record import Kind, State
from tests.integration.gateway.harness import CHAT, PLAIN, error_of, request
from tests.integration.loop.harness import COSTLY, KINDS, Stage, pool_of, stage
from tests.integration.wire.harness import until

THREE = {"tenant": {"signatures": 3, "window_s": 60}}
BY_HEADER = {"header": "x-tenant"}
ACME, OTHER = "x-tenant: acme", "x-tenant: other"
REFUSE = {"interactive": {"breaker": {"on_open": "refuse"}}}
UNTRIPPED = KINDS[4]


async def escalated(on: Stage, *lines: str) -> None:
    for extra in KINDS[:3]:
        assert tenants(on) == set()
        await on.trip(*lines, **extra)
    await until(lambda: bool(tenants(on)))


def tenants(on: Stage) -> set[str]:
    return {record.key for record in on.trust.snapshot() if record.kind is Kind.tenant}


CREDENTIALS: dict[str, tuple[dict[str, Any], str, str]] = {
    "the header of the configuration": ({"tenants": BY_HEADER}, ACME, OTHER),
    "that header in another case": ({"tenants": {"header": "X-Tenant"}}, "X-TENANT: acme", OTHER),
    "a bearer token": ({}, "authorization: Bearer sk-123", "authorization: Bearer sk-124"),
    "an API key": ({}, "x-api-key: sk-123", "x-api-key: sk-124"),
    "the header before the key": (
        {"tenants": BY_HEADER},
        f"authorization: k\r\n{ACME}",
        f"authorization: k\r\n{OTHER}",
    ),
    "the key where the header is missing": ({"tenants": BY_HEADER}, "authorization: k1", ACME),
}


@pytest.mark.parametrize("what", CREDENTIALS)
async def test_a_tenant_whose_signatures_trip_is_quarantined_with_all_that_costs_and_others_are_not(what: str) -> None:
    config, mine, others = CREDENTIALS[what]
    async with stage(breaker=THREE, **config) as on:
        await escalated(on, mine)
        assert len(tenants(on)) == 1
        assert pool_of(await on.chat(mine, **UNTRIPPED)) == "quarantine"
        assert pool_of(await on.chat(others, **UNTRIPPED)) == "interactive"
        assert pool_of(await on.chat(**UNTRIPPED)) == "interactive"
        # Asks for no hook work: that can't hurt anybody.
        assert pool_of(await on.chat(mine)) == "interactive"
        # A signature is everybody's.
        assert pool_of(await on.chat(others, **COSTLY)) == "quarantine"
        assert "sk-123" not in str(on.trust.snapshot())


async def test_as_many_signatures_of_several_tenants_are_nobodys_habit() -> None:
    async with stage(breaker=THREE, tenants=BY_HEADER) as on:
        for number, extra in enumerate(KINDS[:5]):
            await on.trip(f"x-tenant: t{number % 3}", **extra)
        assert tenants(on) == set()


async def test_of_requests_without_a_tenant_nobody_is_quarantined() -> None:
    async with stage(breaker=THREE, tenants=BY_HEADER) as on:
        for extra in KINDS[:5]:
            await on.trip(**extra)
        assert tenants(on) == set()
        assert pool_of(await on.chat(**KINDS[5])) == "interactive"


async def test_one_signature_that_trips_again_and_again_counts_once() -> None:
    async with stage(breaker=THREE, tenants=BY_HEADER) as on:
        for _ in range(4):
            await on.trip(ACME, **COSTLY)
            on.trust.release(Kind.signature, on.signature(**COSTLY), "kim", "")
        await on.trip(ACME, **KINDS[1])
        assert tenants(on) == set()


async def test_a_refused_tenant_is_told_so() -> None:
    async with stage(breaker=THREE, tenants=BY_HEADER, options=REFUSE) as on:
        await escalated(on, ACME)
        answer = await on.chat(ACME, **UNTRIPPED)
        assert answer.status == 429
        assert int(answer.header(b"retry-after") or 0) >= 1
        error = error_of(answer)
        assert error["details"]["tenant"] == "acme"
        assert error["details"]["cause"] == "tenant"
        assert error["details"]["observed"] == 3
        assert "3 different kinds of requests" in error["message"]
        assert (await on.chat(ACME)).status == 200
        assert (await on.chat(OTHER, **UNTRIPPED)).status == 200


async def test_its_time_over_a_tenant_goes_its_old_way() -> None:
    breaker = THREE | {"back_off": {"first_s": 1}, "probes": {"first_s": 60}}
    async with stage(breaker=breaker, tenants=BY_HEADER) as on:
        await escalated(on, ACME)
        await until(lambda: tenants(on) == set())
        assert pool_of(await on.chat(ACME, **UNTRIPPED)) == "interactive"
        assert on.state(**COSTLY) is State.half_open


async def test_the_tenant_may_change_from_request_to_request_of_one_connection() -> None:
    async with stage(breaker=THREE, tenants=BY_HEADER) as on:
        await escalated(on, ACME)
        client = await on.client()
        for line, pool in ((ACME, "quarantine"), (OTHER, "interactive"), (ACME, "quarantine")):
            answer = await client.ask(request(CHAT, PLAIN[CHAT] | UNTRIPPED, line), b"POST")
            assert pool_of(answer) == pool
