"""A tenant's pools are all that there are for it, whichever way a request goes, at the first attempt and at others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.tenants.keys import digest
from tests.integration.reload.harness import site

from .harness import (
    ANSWER,
    CHAT,
    PLAIN,
    Engine,
    Held,
    Message,
    Pools,
    Served,
    error_of,
    hang_up,
    house,
    request,
    saying,
    until,
)

KEY = "authorization: Bearer sk-acme"
STRUCTURED = {**PLAIN[CHAT], "response_format": {"type": "json_object"}}
BUSY = saying(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}")
SPILL: dict[str, Any] = {"a": {"when_unavailable": {"spill": "b"}}}


def rights(*pools: str) -> dict[str, Any]:
    return {"tenants": {"named": {"acme": {"keys": [digest(b"sk-acme")], "pools": list(pools)}}}}


def three(**answers: Any) -> Pools:
    return {name: [Engine(f"{name}-0", answers[name]) if name in answers else Engine(f"{name}-0")] for name in "abc"}


def goes_to(answer: Message) -> str | None:
    pool = answer.header(b"x-steplane-pool")
    return None if pool is None else pool.decode()


def not_allowed(answer: Message) -> bool:
    return answer.status == 403 and error_of(answer)["code"] == "pool_not_allowed"


RULES: dict[str, dict[str, Any]] = {
    "rule": {"pool": "a"},
    "fallbacks": {"pool": "a", "fallbacks": ["b"]},
    "rivals": {"cheapest_backend": ["a", "b"]},
    "rivals and fallbacks": {"cheapest_backend": ["a", "b"], "fallbacks": ["c"]},
}


@pytest.mark.parametrize(
    ("rule", "pools", "goes"),
    [
        ("rule", ["a"], "a"),
        ("rule", ["b"], None),
        ("fallbacks", ["a"], "a"),
        ("fallbacks", ["b"], "b"),
        ("fallbacks", ["c"], None),
        ("rivals", ["b"], "b"),
        ("rivals", ["c"], None),
        ("rivals and fallbacks", ["c"], "c"),
        ("rivals and fallbacks", ["a", "c"], "a"),
    ],
)
async def test_pools_that_it_may_not_use_are_passed_over(rule: str, pools: list[str], goes: str | None) -> None:
    rules = [{"name": "all", **RULES[rule]}]
    async with house(three(), rules=rules, config=rights(*pools)) as running:
        answer = await running.ask(CHAT, STRUCTURED, KEY)
        assert not_allowed(answer) if goes is None else (answer.status, goes_to(answer)) == (200, goes)
        assert (await running.ask(CHAT, STRUCTURED)).status == 200  # a stranger's
        code = await running.metric("steplane_refused_requests_total", code="pool_not_allowed")
        assert code == (1 if goes is None else 0)


@pytest.mark.parametrize("way", ["spill", "fallbacks"])
@pytest.mark.parametrize(("pools", "goes"), [(["a"], None), (["a", "c"], "c"), (["a", "b"], "b")])
async def test_where_its_own_pool_is_down_none_stands_in_that_it_may_not_use(
    way: str, pools: list[str], goes: str | None
) -> None:
    options = {"a": {"when_unavailable": {"spill": "b"}}, "b": {"when_unavailable": {"spill": "c"}}}
    rules = [{"name": "all", "pool": "a", "fallbacks": ["b", "c"] if way == "fallbacks" else []}]
    async with house(
        three(), rules=rules, options=options if way == "spill" else {}, config=rights(*pools), down=("a",)
    ) as running:
        await running.ask(CHAT, PLAIN[CHAT])  # finds out
        assert not running.available("a-0")
        answer = await running.ask(CHAT, PLAIN[CHAT], KEY)
        assert (answer.status, goes_to(answer)) == ((503, None) if goes is None else (200, goes))
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


@pytest.mark.parametrize("how", [hang_up, BUSY])
@pytest.mark.parametrize("pools", [["a"], ["a", "b"]])
async def test_what_failed_is_not_tried_again_where_it_may_not_be(how: Any, pools: list[str]) -> None:
    """`a` fails, and has no replica when it is tried again; the other pool would answer."""
    options = {"a": {**SPILL["a"], "retry": {"attempts": 3, "back_off": {"first_s": 0.01}}}}
    async with house(three(), rules=[], options=options, config=rights(*pools)) as running:

        async def last_words(served: Served, message: Message) -> None:
            running.replicas[0].drain()
            await how(served, message)

        running.engines["a-0"].answer = last_words
        answer = await running.ask(CHAT, PLAIN[CHAT], KEY)
        if pools == ["a"]:
            assert (answer.status, error_of(answer)["code"]) == (503, "pool_unavailable")
            assert running.engines["b-0"].asked == []
        else:
            assert (answer.status, goes_to(answer)) == (200, "b")
        assert len(running.engines["a-0"].asked) == 1


async def test_what_waits_when_its_pool_goes_is_not_sent_where_it_may_not_be(tmp_path: Path) -> None:
    held = Held(end=ANSWER)
    full = {"admission": {"max_in_flight": 1, "max_wait_s": 600}}
    tenants = rights("a")["tenants"]
    whole = {"a": ["a-0"], "b": ["b-0"]}
    async with site(tmp_path, whole, answer=held, a__admission=full["admission"], tenants=tenants) as running:
        first, allowed, stranger = [await running.client() for _ in range(3)]
        await first.send(request(CHAT, PLAIN[CHAT]))
        await until(lambda: running.in_flight == 1)
        await allowed.send(request(CHAT, PLAIN[CHAT], KEY))
        await stranger.send(request(CHAT, PLAIN[CHAT]))
        await until(lambda: running.gateway.router.pools["a"].waiting == 2)
        tenants = rights("b")["tenants"]  # what it was let in under stays in force for what waits
        running.write({"b": ["b-0"]}, tenants=tenants)
        await running.take_over()
        answer = await allowed.response(b"POST")
        assert answer.status == 503
        await until(lambda: len(running.engines["b-0"].asked) == 1)
        held.finish.set()
        assert (await stranger.response(b"POST")).status == 200
        assert (await first.response(b"POST")).status == 200


@pytest.mark.parametrize(("pools", "copied"), [(["a"], False), (["a", "b"], True)])
async def test_no_copy_goes_where_it_may_not(pools: list[str], copied: bool) -> None:
    rules = [{"name": "all", "pool": "a", "shadow": {"pool": "b", "share": 1.0}}]
    async with house(three(), rules=rules, config=rights(*pools)) as running:
        assert (await running.ask(CHAT, PLAIN[CHAT], KEY)).status == 200
        if copied:
            await running.reaches("steplane_shadow_requests_total", 1, pool="b", outcome="2xx")
        else:
            assert await running.metric("steplane_shadow_requests_total", pool="b", outcome="not_allowed") == 1
            assert running.engines["b-0"].asked == []


async def test_a_second_replica_is_asked_in_the_same_pool_alone() -> None:
    held = Held()
    pools = {"a": [Engine("a-0", held)], "b": [Engine("b-0")]}
    options = {"a": {"hedge": {"after_s": 0.05}, "when_unavailable": {"spill": "b"}}}
    async with house(pools, rules=[], options=options, config=rights("a")) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT], KEY))
        await running.reaches("steplane_hedges_total", 1, pool="a", outcome="no_replica")
        assert running.engines["b-0"].asked == []


async def test_what_is_quarantined_goes_to_quarantine_and_nowhere_on_from_there() -> None:
    pools = {"a": [Engine("a-0")], "b": [Engine("b-0")], "quarantine": [Engine("q-0")]}
    costly = {**PLAIN[CHAT], "stop": ["@@"]}
    async with house(pools, rules=[], config=rights("a")) as running:
        assert goes_to(await running.ask(CHAT, costly, KEY)) == "a"
        await running.bar(costly)
        assert goes_to(await running.ask(CHAT, costly, KEY)) == "quarantine"
        await running.engines["q-0"].stop()
        for _ in range(2):
            assert (await running.ask(CHAT, costly, KEY)).status in (502, 503)
        assert running.engines["b-0"].asked == []


async def test_a_rule_that_sends_to_the_quarantine_pool_itself_is_like_any_other() -> None:
    pools = {"a": [Engine("a-0")], "quarantine": [Engine("q-0")]}
    async with house(pools, rules=[{"name": "all", "pool": "quarantine"}], config=rights("a")) as running:
        assert not_allowed(await running.ask(CHAT, PLAIN[CHAT], KEY))


async def test_a_path_that_is_passed_through_is_bound_by_it_too() -> None:
    async with house(three(), rules=[{"name": "all", "pool": "a"}], config=rights("b")) as running:
        assert not_allowed(await running.ask("/v1/embeddings", {"input": "hi"}, KEY))
        assert not_allowed(await running.ask("/v1/files", None, KEY, method="GET"))
        assert running.asked == []


async def test_an_explanation_knows_what_a_tenant_may_use() -> None:
    rules = [{"name": "all", "pool": "a", "fallbacks": ["b"]}]
    async with house(three(), rules=rules, config=rights("b")) as running:
        said = await running.post("/api/v1/explain?tenant=acme", PLAIN[CHAT])
        assert (said["pool"], said["spilled_from"]) == ("b", "a")
        assert "tenant 'acme' may not use pool 'a'" in said["why"]
        assert (await running.post("/api/v1/explain", PLAIN[CHAT]))["pool"] == "a"


@pytest.mark.parametrize(("pools", "guest"), [(["a"], False), (["a", "b"], True)])
async def test_where_its_own_pool_is_full_it_is_no_guest_of_one_that_it_may_not_use(
    pools: list[str], guest: bool
) -> None:
    held = Held(end=ANSWER)
    full = {"admission": {"max_in_flight": 1, "max_wait_s": 600}, "when_full": {"spill": "b"}}
    async with house(three(a=held), rules=[], options={"a": full}, config=rights(*pools)) as running:
        first, second = await running.client(), await running.client()
        await first.send(request(CHAT, PLAIN[CHAT]))
        await until(lambda: running.in_flight == 1)
        await second.send(request(CHAT, PLAIN[CHAT], KEY))
        if not guest:
            await until(lambda: running.gateway.router.pools["a"].waiting == 1)
            held.finish.set()
        assert goes_to(await second.response(b"POST")) == ("b" if guest else "a")
        held.finish.set()
        assert (await first.response(b"POST")).status == 200
        assert len(running.engines["b-0"].asked) == int(guest)
