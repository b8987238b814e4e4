"""Replicas that come up are fed what is asked for most, before they take requests and without anybody paying for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.tenants.keys import digest
from tests.integration.reload.harness import Site, site

from .harness import ANSWER, CHAT, PLAIN, Engine, Held, House, Message, Served, hang_up, house, ok, saying, until

WARM = {"warm_up": {"grammars": 3, "timeout_s": 600}}
REFUSED = saying(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")


def structured(name: str, **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    return {**PLAIN[CHAT], "response_format": form, **fields}


def two() -> dict[str, list[Engine]]:
    return {"p": [Engine("a"), Engine("b")]}


def is_warm_up(message: Message) -> bool:
    return message.header(b"x-steplane-warm-up") is not None


def names_fed(engine: Engine) -> list[str]:
    """The grammars that an engine was warmed up with, by the names of their schemas."""
    return [
        json.loads(message.body)["response_format"]["json_schema"]["name"]
        for message in engine.asked
        if is_warm_up(message)
    ]


def state_of(running: House, name: str) -> bool:
    return next(replica.warming for replica in running.replicas if replica.name == name)


async def use(running: House, times: dict[str, int], *lines: str) -> None:
    for name, count in times.items():
        for _ in range(count):
            assert (await running.ask(CHAT, structured(name), *lines)).status == 200


async def restart(running: House, name: str, wait: bool = True) -> None:
    """An engine dies, which is noticed, and is started anew."""
    await running.engines[name].stop()
    replica = next(each for each in running.replicas if each.name == name)
    running.gateway._fleet.health.report_refused(replica)  # type: ignore[union-attr]
    assert not replica.available
    await running.engines[name].start()
    if wait:
        await until(lambda: replica.available)


async def test_a_restarted_replica_is_fed_the_grammars_that_are_used_most_before_it_takes_requests() -> None:
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        await use(running, {"rare": 1, "some": 2, "more": 3, "most": 5, "other": 2, "many": 4})
        held = Held(end=ANSWER)
        running.engines["a"].answer = held
        await restart(running, "a", wait=False)
        await until(lambda: state_of(running, "a"))
        await held.arrived.wait()
        for _ in range(4):
            answer = await running.ask(CHAT, PLAIN[CHAT])
            assert answer.values(b"x-steplane-replica") == [b"b"]
        _, replicas = await running.admin("/api/v1/replicas")
        assert {each["name"]: each["warming"] for each in json.loads(replicas)["replicas"]} == {"a": True, "b": False}
        assert await running.metric("steplane_replica_warming", replica="a") == 1
        _, overview = await running.admin("/api/v1/overview")
        assert json.loads(overview)["replicas"]["a"]["state"] == "warming"
        held.finish.set()
        await until(lambda: running.available("a"))
        assert sorted(names_fed(running.engines["a"])) == ["many", "more", "most"]
        assert names_fed(running.engines["b"]) == []
        assert await running.metric("steplane_warmups_total", pool="p", outcome="done") == 1
        assert await running.metric("steplane_warmup_grammars_total", pool="p", outcome="ok") == 3
        assert await running.metric("steplane_warmup_duration_seconds_count", pool="p") == 1
        assert await running.metric("steplane_replica_warming", replica="a") == 0
        assert "a" in {(await running.ask(CHAT, PLAIN[CHAT])).header(b"x-steplane-replica").decode() for _ in range(2)}  # type: ignore[union-attr]


async def test_what_is_sent_is_the_constraint_alone_for_one_token_with_the_pools_key() -> None:
    options = {"p": {**WARM, "api_key": "sk-engine"}}
    async with house(two(), options=options, rules=[]) as running:
        await use(running, {"most": 2}, "authorization: Bearer sk-client")
        await restart(running, "a")
        (fed,) = [message for message in running.engines["a"].asked if is_warm_up(message)]
        assert fed.start == b"POST /v1/chat/completions HTTP/1.1"
        assert fed.values(b"authorization") == [b"Bearer sk-engine"]
        body = json.loads(fed.body)
        assert body.pop("response_format") == structured("most")["response_format"]
        assert body == {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "."}]}


async def test_so_many_are_sent_at_once_as_may_be() -> None:
    pools = two()
    options = {"p": {"warm_up": {"concurrency": 2}}}
    async with house(pools, options=options, rules=[]) as running:
        await use(running, dict.fromkeys("abcdef", 2))
        most = now = 0

        async def counting(served: Served, message: Message) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await until(lambda: most >= 2)
            for _ in range(20):  # in which a third would come
                await asyncio.sleep(0)
            now -= 1
            await ok(served, message)

        running.engines["a"].answer = counting
        await restart(running, "a")
        assert sorted(names_fed(running.engines["a"])) == list("abcdef")
        assert most == 2


async def test_nobody_is_charged_and_nothing_is_counted() -> None:
    limits = {"requests_per_s": 1000, "tokens_per_s": 100_000}
    named = {"acme": {"keys": [digest(b"sk-acme")], "limits": limits}}
    async with house(two(), options={"p": WARM}, rules=[], config={"tenants": {"named": named}}) as running:
        await use(running, {"most": 3}, "authorization: Bearer sk-acme")
        before = await running.metric("steplane_requests_total")
        running.engines["a"].answer = saying(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}")
        for _ in range(6):  # more faults than its breaker would stand
            await restart(running, "a")
        assert len(names_fed(running.engines["a"])) == 6
        assert await running.metric("steplane_requests_total") == before == 3
        assert await running.metric("steplane_tenant_requests_total", tenant="acme") == 3
        assert await running.metric("steplane_upstream_errors_total") == 0
        assert await running.metric("steplane_warmup_grammars_total", outcome="failed") == 6
        assert running.available("a")
        assert running.in_flight == 0


async def test_the_last_replica_of_a_pool_takes_requests_at_once() -> None:
    held = Held(end=ANSWER)
    async with house({"p": [Engine("a")]}, options={"p": WARM}, rules=[]) as running:
        await use(running, {"most": 2})

        async def answer(served: Served, message: Message) -> None:
            await (held if is_warm_up(message) else ok)(served, message)

        running.engines["a"].answer = answer
        await restart(running, "a")
        await held.arrived.wait()
        assert not state_of(running, "a")
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200
        held.finish.set()
        await running.reaches("steplane_warmups_total", 1, outcome="serving")


async def test_one_that_is_being_warmed_up_takes_requests_when_the_last_other_goes() -> None:
    held = Held(end=ANSWER)
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        await use(running, {"most": 2})

        async def answer(served: Served, message: Message) -> None:
            await (held if is_warm_up(message) else ok)(served, message)

        running.engines["a"].answer = answer
        await restart(running, "a", wait=False)
        await until(lambda: state_of(running, "a"))
        await running.post("/api/v1/replicas/b/drain", {})
        assert running.available("a")
        assert (await running.ask(CHAT, PLAIN[CHAT])).values(b"x-steplane-replica") == [b"a"]
        held.finish.set()
        await running.reaches("steplane_warmups_total", 1, outcome="serving")


async def test_after_its_time_it_takes_requests_whatever_is_compiled() -> None:
    held = Held()
    async with house(two(), options={"p": {"warm_up": {"timeout_s": 1}}}, rules=[]) as running:
        await use(running, {"most": 2, "more": 2, "some": 2})
        running.engines["a"].answer = held
        await restart(running, "a")
        assert len(names_fed(running.engines["a"])) <= 2
        assert await running.metric("steplane_warmups_total", outcome="timeout") == 1
        running.engines["a"].answer = ok
        assert (await running.ask(CHAT, PLAIN[CHAT])).status == 200


async def test_one_that_dies_again_meanwhile_is_warmed_up_again() -> None:
    held = Held()
    async with house(two(), options={"p": {"warm_up": {"concurrency": 1, "timeout_s": 600}}}, rules=[]) as running:
        await use(running, {"most": 3, "more": 2})
        running.engines["a"].answer = held
        await restart(running, "a", wait=False)
        await held.arrived.wait()
        running.engines["a"].answer = ok
        await running.engines["a"].stop()
        await until(lambda: not running.replicas[0].healthy)  # the second finds nobody there
        await running.engines["a"].start()
        await until(lambda: running.available("a"))
        assert await running.metric("steplane_warmups_total", outcome="done") == 1
        assert await running.metric("steplane_warmups_total", outcome="gone") == 1
        assert not state_of(running, "a")


async def test_one_that_joins_by_the_api_is_warmed_up_and_may_leave_meanwhile() -> None:
    held = Held()
    async with house({"p": [Engine("a")], "q": [Engine("c", held)]}, options={"p": WARM}, rules=[]) as running:
        await use(running, {"most": 2})
        url = running.engines["c"].url
        await running.gateway._fleet.remove("c")  # type: ignore[union-attr]
        await running.post("/api/v1/pools/p/replicas", {"url": url, "name": "d"})
        await until(lambda: state_of(running, "d"))
        await held.arrived.wait()
        await running.gateway._fleet.remove("d")  # type: ignore[union-attr]
        await held.left.wait()
        await running.reaches("steplane_warmups_total", 1, outcome="gone")


async def test_what_is_quarantined_is_not_sent() -> None:
    pools = {"p": [Engine("a"), Engine("b")], "quarantine": [Engine("z")]}
    async with house(pools, options={"p": WARM}, rules=[]) as running:
        barred = structured("barred", stop=["@@"], n=3)
        for _ in range(3):
            assert (await running.ask(CHAT, barred)).status == 200
        await use(running, {"good": 2})
        await running.bar(barred)
        for _ in range(9):  # in quarantine, it is not counted either
            assert (await running.ask(CHAT, barred)).values(b"x-steplane-pool") == [b"quarantine"]
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["good"]


async def test_a_grammar_that_engines_refuse_is_forgotten() -> None:
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        await use(running, {"odd": 3})
        running.engines["a"].answer = REFUSED
        await restart(running, "a")
        assert await running.metric("steplane_warmup_grammars_total", outcome="refused") == 1
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["odd"]


async def test_a_grammar_that_an_engine_may_have_died_of_does_not_keep_it_from_coming_up() -> None:
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        await use(running, {"deadly": 3, "good": 2})
        engine = running.engines["a"]

        async def dies(served: Served, message: Message) -> None:
            await (hang_up if b"deadly" in message.body else ok)(served, message)

        engine.answer = dies
        await restart(running, "a")
        assert sorted(names_fed(engine)) == ["deadly", "good"]
        assert await running.metric("steplane_warmup_grammars_total", outcome="broken") == 1
        await restart(running, "a")
        assert sorted(names_fed(engine)) == ["deadly", "good", "good"]


async def test_where_schemas_are_spelled_in_one_way_so_are_those_of_warm_ups() -> None:
    options = {"p": {**WARM, "canonicalize_schema": True}}
    async with house(two(), options=options, rules=[]) as running:
        await use(running, {"most": 2})
        await restart(running, "a")
        (fed,) = [message for message in running.engines["a"].asked if is_warm_up(message)]
        schema = b'{"properties":{"most":{"type":"string"}},"required":["most"],"type":"object"}'
        assert schema in fed.body
        real = next(message for message in running.asked if not is_warm_up(message))
        assert schema in real.body


@pytest.mark.parametrize("body", [structured("large", padding="x" * (1 << 20)), structured("x" * 70_000)])
async def test_what_is_too_large_is_not_kept(body: dict[str, Any]) -> None:
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        for _ in range(2):
            assert (await running.ask(CHAT, body)).status == 200
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == []
        assert await running.metric("steplane_warmups_total") == 0


async def test_no_grammar_is_shown_or_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async with house(two(), options={"p": WARM}, rules=[]) as running:
        await use(running, {"confidential": 3})
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["confidential"]
        for path in ("replicas", "pools", "overview", "costs", "config"):
            assert "confidential" not in (await running.admin(f"/api/v1/{path}"))[1]
        assert "confidential" not in (await running.admin("/metrics"))[1]
    said = capsys.readouterr()
    assert "warmed_up" in said.out + said.err
    assert "confidential" not in said.out + said.err


async def test_a_reload_turns_it_on_and_off(tmp_path: Any) -> None:
    async with site(tmp_path, {"p": ["a", "b"]}) as running:
        await use(running, {"before": 3})
        await become(running, **WARM)
        await use(running, {"after": 2})
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["after"]
        held = Held()
        running.engines["a"].answer = held
        await restart(running, "a", wait=False)
        await held.arrived.wait()
        assert state_of(running, "a")
        await become(running)
        assert running.available("a")
        await held.left.wait()
        running.engines["a"].answer = ok
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["after", "after"]
        await become(running, **WARM)
        await restart(running, "a")
        assert names_fed(running.engines["a"]) == ["after", "after"]


async def become(running: Site, **options: Any) -> None:
    running.write({"p": ["a", "b"]}, **{f"p__{name}": value for name, value in options.items()})
    await running.take_over()
