"""The access log: a line for each request, with what was decided and what came of it, and nothing that is secret."""

import asyncio
import json
from typing import Any

import pytest

from tests.integration.gateway.harness import CHAT, PLAIN, SSE_HEAD, Engine, House, house, request, saying, three_pools
from tests.integration.wire.harness import PATIENCE_S

SECRET = "a prompt that nobody may read"
SCHEMA = {"type": "object", "properties": {"secretfield": {"type": "string"}}}
BODY = {**PLAIN[CHAT], "messages": [{"role": "user", "content": SECRET}]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "secretname", "schema": SCHEMA}}
BUSY = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"


def on(**access: Any) -> dict[str, Any]:
    return {"logs": {"format": "json", "access": {"sample": 1.0, **access}}}


def lines(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == "access"]


async def test_a_line_says_what_was_decided_and_what_came_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    async with house(three_pools(), config=on()) as here:
        await here.ask(CHAT, {**BODY, "response_format": FORMAT}, "x-request-id: mine")

    (line,) = lines(capfd.readouterr().err)
    expected = {
        "level": "info", "request_id": "mine", "method": "POST", "path": CHAT, "status": 200, "outcome": "ok",
        "api": "chat", "model": "m", "stream": False, "grammar": "json_schema", "pool": "grammar",
        "rule": "structured", "replica": "grammar-0", "attempts": 1,
    }  # fmt: skip
    assert line | expected == line
    assert line["step_us"] > 0
    assert line["bytes_in"] > 100
    assert line["bytes_out"] > 10
    assert 0 <= line["ttfb_ms"] <= line["total_ms"]


async def test_nothing_secret_is_in_any_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with house(three_pools(), config=on() | {"tenants": {"named": {"acme": {}}}}) as here:
        key = "authorization: Bearer sk-hidden"
        await here.ask(f"{CHAT}?api_key=sk-hidden", {**BODY, "response_format": FORMAT}, key)
        await here.ask(CHAT, b'{"messages": "' + SECRET.encode(), key)
        await here.ask("/abort_request", {"rid": SECRET}, key)
        await here.ask("/elsewhere", {"any": SECRET}, key)

    said = capfd.readouterr()
    assert len(lines(said.err)) == 4
    for secret in (SECRET, "secretfield", "secretname", "sk-hidden"):
        assert secret not in said.err + said.out


@pytest.mark.parametrize(
    ("path", "body", "require_key", "outcome", "status"),
    [
        (CHAT, b"{", False, "refused", 400),
        ("/abort_request", {}, True, "refused", 403),
        (CHAT, BODY, True, "rejected", 401),
    ],
)
async def test_who_is_turned_away_gets_a_line_too(
    capfd: pytest.CaptureFixture[str], path: str, body: object, require_key: bool, outcome: str, status: int
) -> None:
    async with house(three_pools(), config=on() | {"tenants": {"require_key": require_key}}) as here:
        assert (await here.ask(path, body)).status == status

    (line,) = lines(capfd.readouterr().err)
    assert (line["outcome"], line["status"]) == (outcome, status)


async def test_a_client_that_leaves_and_a_stream_that_breaks_are_told_apart(capfd: pytest.CaptureFixture[str]) -> None:
    async with house({"interactive": [Engine("a", saying(SSE_HEAD))]}, config=on()) as here:
        client = await here.client()
        await asyncio.wait_for(_leave_in_the_middle(here, client), PATIENCE_S)

    assert [line["outcome"] for line in lines(capfd.readouterr().err)] == ["client_left"]


async def _leave_in_the_middle(here: House, client: Any) -> None:
    client.writer.write(request(CHAT, {**BODY, "stream": True}))
    await client.reader.readuntil(b"\r\n\r\n")
    client.close()
    await here.reaches("steplane_client_disconnects_total", 1)


async def test_of_a_sample_those_that_failed_are_always_there(capfd: pytest.CaptureFixture[str]) -> None:
    pools = {"interactive": [Engine("a")], "grammar": [Engine("g", saying(BUSY))]}
    rules = [{"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"}]
    async with house(pools, rules=rules, config=on(sample=0.0)) as here:
        await here.ask(CHAT, BODY)
        await here.ask(CHAT, {**BODY, "response_format": FORMAT})

    (line,) = lines(capfd.readouterr().err)
    assert (line["pool"], line["status"], line["outcome"]) == ("grammar", 500, "error")


async def test_by_default_there_are_none(capfd: pytest.CaptureFixture[str]) -> None:
    async with house(three_pools()) as here:
        await here.ask(CHAT, BODY)

    assert lines(capfd.readouterr().err) == []


async def test_named_tenants_are_counted_and_the_others_together() -> None:
    config = {"tenants": {"header": "x-tenant", "named": {"acme": {}}}}
    async with house(three_pools(), config=config) as here:
        for tenant in ("acme", "acme", "others", "more"):
            await here.ask(CHAT, BODY, f"x-tenant: {tenant}")
        assert await here.metric("steplane_tenant_requests_total", tenant="acme", status="2xx") == 2
        assert await here.metric("steplane_tenant_requests_total", tenant="", status="2xx") == 2
