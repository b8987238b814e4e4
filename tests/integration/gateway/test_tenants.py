"""Who may ask for what, how much of it, and that a client's key ends at the gateway."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from gateway.tenants.keys import digest

from .harness import (
    ANSWER,
    CHAT,
    LAST,
    MESSAGES,
    PLAIN,
    SSE_HEAD,
    Engine,
    Held,
    House,
    Message,
    Served,
    chunk,
    error_of,
    house,
    request,
    saying,
    stream,
    three_pools,
)

KEYS = {"acme": "sk-acme", "blue": "sk-blue"}
STRUCTURED = {**PLAIN[CHAT], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}}


def bearer(tenant: str) -> str:
    return f"authorization: Bearer {KEYS[tenant]}"


def tenants(**named: dict[str, Any]) -> dict[str, Any]:
    """Tenants with one key each."""
    return {"named": {name: {"keys": [digest(KEYS[name].encode())], **rest} for name, rest in named.items()}}


async def test_only_known_keys_are_let_in_where_one_is_required() -> None:
    async with house(config={"tenants": {"require_key": True, **tenants(acme={})}}) as running:
        for line in ((), ("authorization: Bearer sk-other",), ("x-api-key: sk-other",)):
            for method, path, body in (("POST", CHAT, PLAIN[CHAT]), ("GET", "/v1/models", None)):
                answer = await running.ask(path, body, *line, method=method)
                assert (answer.status, error_of(answer)["code"]) == (401, "invalid_api_key")
                assert answer.header(b"x-request-id")
        assert running.asked == []
        assert (await running.ask(CHAT, PLAIN[CHAT], bearer("acme"))).status == 200
        assert (await running.ask(MESSAGES, PLAIN[MESSAGES], "x-api-key: sk-acme")).status == 200
        assert await running.metric("steplane_refused_requests_total", code="invalid_api_key") == 6


@pytest.mark.parametrize("body", [b"", b'{"model":'], ids=["none", "a part"])
async def test_who_has_no_known_key_hears_so_before_it_has_sent_its_body(body: bytes) -> None:
    """Nor is it kept until then: anybody could have us hold as much as a body may have, on every connection."""
    head = request(CHAT, None, "content-length: 1000", "expect: 100-continue")
    async with house(config={"tenants": {"require_key": True, **tenants(acme={})}}) as running:
        client = await running.client()
        await client.send(head + body)
        answer = await client.response()
        assert (answer.status, answer.header(b"www-authenticate"), client.interim) == (401, b"Bearer", ())
        await client.closed()
        known = await running.client()
        await known.send(request(CHAT, None, "content-length: 1000", "expect: 100-continue", bearer("acme")))
        assert await known.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_a_clients_key_goes_no_further_and_a_pools_own_is_shown_to_its_replicas() -> None:
    options = {"grammar": {"api_key": "sk-engine"}}
    async with house(config={"tenants": tenants(acme={})}, options=options) as running:
        for extra in ((), ("x-trace: 1",), ("x-trace: 2",)):
            for body in (PLAIN[CHAT], STRUCTURED):
                assert (await running.ask(CHAT, body, bearer("acme"), "accept: x/y", *extra)).status == 200
        for message in running.asked:
            assert b"sk-acme" not in b"".join(value for _, value in message.headers)
            assert message.header(b"accept") == b"x/y"
        plain, structured = (running.engines[name].asked for name in ("interactive-0", "grammar-0"))
        assert [message.values(b"authorization") for message in plain] == [[], [], []]
        assert [message.values(b"authorization") for message in structured] == [[b"Bearer sk-engine"]] * 3


async def test_without_keys_of_ours_the_clients_is_the_engines_business() -> None:
    async with house() as running:
        await running.ask(CHAT, PLAIN[CHAT], bearer("acme"))
        assert running.asked[0].values(b"authorization") == [b"Bearer sk-acme"]


async def test_a_tenant_uses_the_models_and_pools_that_it_may() -> None:
    rights = tenants(acme={"models": ["m*"], "pools": ["interactive"]}, blue={})
    async with house(config={"tenants": rights}) as running:
        assert (await running.ask(CHAT, {**PLAIN[CHAT], "model": "mini"}, bearer("acme"))).status == 200
        answer = await running.ask(CHAT, {**PLAIN[CHAT], "model": "large"}, bearer("acme"))
        assert (answer.status, error_of(answer)["code"]) == (404, "model_not_found")
        answer = await running.ask(CHAT, STRUCTURED, bearer("acme"))
        assert (answer.status, error_of(answer)["code"]) == (403, "pool_not_allowed")
        assert (await running.ask(CHAT, {**STRUCTURED, "model": "large"}, bearer("blue"))).status == 200


async def test_who_asks_too_often_is_told_when_to_come_again_and_others_are_not_kept_waiting() -> None:
    limits = {"requests_per_s": 0.01, "requests_burst": 2}
    async with house(config={"tenants": tenants(acme={"limits": limits}, blue={})}) as running:
        answers = [await running.ask(CHAT, PLAIN[CHAT], bearer("acme")) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert error_of(answers[2])["code"] == "rate_limit_exceeded"
        assert 90 <= int(answers[2].header(b"retry-after") or 0) <= 100
        assert [answer.header(b"x-ratelimit-remaining-requests") for answer in answers] == [b"1", b"0", b"0"]
        assert answers[0].header(b"x-ratelimit-limit-requests") == b"2"
        other = await running.ask(CHAT, PLAIN[CHAT], bearer("blue"))
        assert other.status == 200
        assert other.header(b"x-ratelimit-limit-requests") is None
        assert len(running.asked) == 3


USED: dict[str, tuple[bytes, bool, int]] = {
    "what an unstreamed answer says": (
        b'HTTP/1.1 200 OK\r\ncontent-length: 33\r\n\r\n{"usage":{"completion_tokens":3}}',
        False,
        3,
    ),
    "nothing for an error": (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}", False, 0),
}


@pytest.mark.parametrize("what", USED)
async def test_tokens_are_charged_for(what: str) -> None:
    response, streams, tokens = USED[what]
    limits = {"tokens_per_s": 0.001, "tokens_burst": 1000}
    body = {**PLAIN[CHAT], "max_tokens": 100, "stream": streams}
    pools = three_pools(saying(response))
    async with house(pools, config={"tenants": tenants(acme={"limits": limits})}) as running:
        await running.ask(CHAT, body, bearer("acme"))
        _, shown = await running.admin("/api/v1/tenants")
        (acme,) = json.loads(shown)["tenants"]
        assert acme["limits"]["tokens"]["left"] == pytest.approx(1000 - tokens - len("hi") / 4, abs=1)


async def test_the_events_of_a_stream_are_its_tokens() -> None:
    async def tokens(served: Served, message: Message) -> None:
        await stream_of(served, 40)

    limits = {"tokens_per_s": 0.001, "tokens_burst": 1000}
    body = {**PLAIN[CHAT], "stream": True}
    async with house(three_pools(tokens), config={"tenants": tenants(acme={"limits": limits})}) as running:
        await running.ask(CHAT, body, bearer("acme"))
        _, shown = await running.admin("/api/v1/tenants")
        (acme,) = json.loads(shown)["tenants"]
        # [DONE] is an event, too.
        assert acme["limits"]["tokens"]["left"] == pytest.approx(1000 - 41, abs=2)


async def stream_of(served: Served, events: int) -> None:
    await served.send(SSE_HEAD)
    for number in range(events):
        await served.send(chunk(b'data: {"n":%d}\n\n' % number))
    await served.send(chunk(b"data: [DONE]\n\n") + LAST)


async def test_predicted_hook_time_is_charged_where_no_feed_tells_of_it() -> None:
    limits = {"hook_us_per_s": 1, "hook_us_burst": 10_000_000}
    body = {**STRUCTURED, "stream": True}
    pools = three_pools(stream)
    options = {name: {"feed": "off"} for name in pools}
    async with house(pools, options=options, config={"tenants": tenants(acme={"limits": limits})}) as running:
        left = []
        for _ in range(2):
            await running.ask(CHAT, body, bearer("acme"))
            _, shown = await running.admin("/api/v1/tenants")
            left.append(json.loads(shown)["tenants"][0]["limits"]["hook_us"]["left"])
        assert left[0] < 10_000_000
        assert left[1] < left[0]


async def until_queued(running: House, number: int) -> None:
    for _ in range(1000):
        if await running.metric("steplane_queue_requests", pool="interactive") == number:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never were {number} waiting")


async def test_a_higher_priority_goes_first_where_requests_wait() -> None:
    first, answer = Held(end=ANSWER), saying(ANSWER)

    async def engine(served: Served, message: Message) -> None:
        await (answer if first.arrived.is_set() else first)(served, message)

    pools = {"interactive": [Engine("interactive-0", engine)]}
    rights = tenants(acme={"priority": -5}, blue={"priority": 5})
    options = {"interactive": {"admission": {"max_in_flight": 1}}}
    async with house(pools, rules=[], options=options, config={"tenants": rights}) as running:
        waiting = [asyncio.create_task(running.ask(CHAT, PLAIN[CHAT], bearer("acme")))]
        await first.arrived.wait()
        for tenant in ("acme", "blue"):
            waiting.append(asyncio.create_task(running.ask(CHAT, PLAIN[CHAT], f"x-who: {tenant}", bearer(tenant))))
            await until_queued(running, len(waiting) - 1)
        first.finish.set()
        await asyncio.gather(*waiting)
        assert [message.header(b"x-who") for message in running.asked] == [None, b"blue", b"acme"]


async def test_keys_are_made_while_it_runs_only_where_all_gateways_share_them() -> None:
    async with house(config={"tenants": tenants(acme={})}) as running:
        host, port = running.gateway.admin_address
        async with aiohttp.ClientSession() as session:
            url = f"http://{host}:{port}/api/v1/tenants/acme/keys"
            async with session.post(url, json={"author": "me", "reason": "new service"}) as answer:
                assert answer.status == 409
                assert (await answer.json())["error"]["code"] == "not_shared"
