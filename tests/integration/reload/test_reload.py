"""What a reload changes, what it keeps, and that a bad file changes nothing."""

import asyncio
from pathlib import Path

import pytest

from gateway.breaker.record import Kind
from tests.integration.gateway.harness import CHAT, EVENT, LAST, PLAIN, SSE_HEAD, Held, chunk, request
from tests.integration.wire.harness import PATIENCE_S, Message

from .harness import Site, site

STRUCTURED = PLAIN[CHAT] | {"response_format": {"type": "json_object"}}


def said(message: Message, header: str) -> str:
    value = message.header(header.encode())
    assert value is not None
    return value.decode()


async def replica_of(running: Site, body: object = PLAIN[CHAT]) -> str:
    answer = await running.ask(CHAT, body)
    assert answer.status == 200
    return said(answer, "x-steplane-replica")


async def test_a_replica_that_is_named_joins_and_one_that_is_not_leaves(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        await running.engine("b")
        running.write({"chat": ["b"]})

        report = await running.reload()

        assert report["outcome"] == "applied"
        assert [(change["key"], change["needs_restart"]) for change in report["changes"]] == [
            ("pools.chat.replicas.a", False),
            ("pools.chat.replicas.b", False),
        ]
        await running.replicas_named("b")
        assert await replica_of(running) == "b"


async def test_pools_and_rules_come_and_go(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        await running.engine("b")
        rules = [{"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"}]
        running.write({"chat": ["a"], "grammar": ["b"]}, rules=rules)
        await running.take_over()
        await running.replicas_named("a", "b")

        answer = await running.ask(CHAT, STRUCTURED)
        assert (said(answer, "x-steplane-route"), said(answer, "x-steplane-replica")) == ("structured", "b")

        running.write({"chat": ["a"]})
        await running.take_over()
        await running.replicas_named("a")
        answer = await running.ask(CHAT, STRUCTURED)
        assert (said(answer, "x-steplane-route"), said(answer, "x-steplane-replica")) == ("default", "a")
        assert await running.metric("steplane_requests_total", rule="structured", pool="grammar") == 1


async def test_a_running_stream_is_finished_on_a_replica_that_has_left(tmp_path: Path) -> None:
    held = Held(SSE_HEAD + EVENT, chunk(b"data: [DONE]\n\n") + LAST)
    async with site(tmp_path, {"chat": ["a"], "old": ["c"]}, answer=held) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT] | {"stream": True}))
        await asyncio.wait_for(held.arrived.wait(), PATIENCE_S)
        await running.engine("b")

        running.write({"chat": ["b"]})
        await running.take_over()
        assert await replica_of(running) == "b"
        held.finish.set()

        message = await client.response(b"POST")
        assert message.body.endswith(b"data: [DONE]\n\n")
        assert said(message, "x-steplane-replica") == "a"


async def test_who_waits_for_a_pool_that_is_gone_goes_where_the_new_rules_say(tmp_path: Path) -> None:
    held = Held(SSE_HEAD, LAST)
    limits = {"queue": 10, "max_wait_s": PATIENCE_S, "max_in_flight": 1}
    async with site(tmp_path, {"old": ["a"]}, answer=held, old__admission=limits) as running:
        first, second = await running.client(), await running.client()
        await first.send(request(CHAT, PLAIN[CHAT]))
        await asyncio.wait_for(held.arrived.wait(), PATIENCE_S)
        await second.send(request(CHAT, PLAIN[CHAT]))
        await running.reaches("steplane_queue_requests", 1)
        await running.engine("b")

        running.write({"new": ["b"]})
        reloading = asyncio.create_task(running.take_over())
        answer = await second.response(b"POST")
        await reloading

        assert (answer.status, said(answer, "x-steplane-replica")) == (200, "b")
        held.finish.set()
        assert said(await first.response(b"POST"), "x-steplane-replica") == "a"


async def test_a_bad_file_changes_nothing_and_says_why_in_every_place(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        good = running.file.read_text()
        running.file.write_text(good.replace("default_pool: chat", "default_pool: chatt"))

        status, answer = await running.ask_admin("POST", "/api/v1/reload")

        assert (status, answer["outcome"], answer["error"]["code"]) == (422, "refused", "reload_refused")
        assert answer["problems"][0]["key"] == "default_pool"
        assert answer["problems"][0]["line"] == 1 + good.splitlines().index("default_pool: chat")
        assert await replica_of(running) == "a"
        _, shown = await running.ask_admin("GET", "/api/v1/config")
        assert "chatt" in shown["last_error"]
        assert await running.metric("steplane_config_reloads_total", outcome="refused") == 1
        assert await running.metric("steplane_config_last_reload_good") == 0

        running.file.write_text(good)
        assert (await running.reload())["outcome"] == "unchanged"
        _, shown = await running.ask_admin("GET", "/api/v1/config")
        assert shown["last_error"] is None
        assert await running.metric("steplane_config_last_reload_good") == 1
        # What failed last is still to be seen, and that nothing fails any more.
        assert "chatt" in shown["last_failed"]["problems"][0]["said"]
        _, page = await running.ask_admin("GET", "/api/v1/overview")
        loaded = page["configuration"]["loaded"]
        assert "chatt" in loaded["last_failed"]["why"]
        assert loaded["failing_since"] is None
        assert "reload" not in [each["key"] for each in page["status"]["line"]["findings"]]


async def test_a_bad_file_that_was_only_checked_is_no_failed_reload(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        running.file.write_text(running.file.read_text().replace("default_pool: chat", "default_pool: chatt"))

        status, _ = await running.ask_admin("POST", "/api/v1/reload?check=true")

        assert status == 422
        _, shown = await running.ask_admin("GET", "/api/v1/config")
        assert (shown["last_reload"], shown["last_failed"]) == (None, None)


async def test_a_dry_run_tells_the_changes_and_makes_none(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        running.write({"chat": ["a"]}, chat__step_budget_us=500)

        report = await running.reload("?check=true")

        assert report["outcome"] == "checked"
        assert report["changes"] == [
            {"key": "pools.chat.step_budget_us", "before": "nothing", "after": "500.0", "needs_restart": False}
        ]
        assert running.gateway.router.pools["chat"].step_budget_us is None


async def test_what_needs_a_restart_is_named_each_time_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        address = running.gateway.data_address
        running.write({"chat": ["a"]}, listen="127.0.0.1:1", chat__step_budget_us=500)

        for outcome in ("applied", "unchanged"):
            report = await running.reload()
            assert report["outcome"] == outcome
            assert {key.split(".")[0] for key in report["needs_restart"]} == {"listen"}

        assert running.gateway.data_address == address
        assert running.gateway.router.pools["chat"].step_budget_us == 500


async def test_what_is_known_of_replicas_and_requests_survives(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a", "b"], "quarantine": ["q"]}) as running:
        oversight = running.gateway._oversight
        assert oversight is not None
        oversight.trust.pin(Kind.signature, "s1-0000000000000001", "me", "because")
        kept = {each.name: each for each in running.replicas}
        breaker = running.gateway._fleet.breakers["chat"]
        kept["a"].eject()

        running.write({"chat": ["a", "b"], "quarantine": ["q"]}, chat__step_budget_us=500)
        await running.take_over()

        assert {each.name: each for each in running.replicas} == kept
        assert running.gateway._fleet.breakers["chat"] is breaker
        assert kept["a"].ejected
        assert kept["b"].available
        assert "s1-0000000000000001" in oversight.trust.barred_signatures


async def test_a_replica_at_another_address_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        old = running.engines["a"]
        new = await running.engine("a")

        running.write({"chat": ["a"]})
        await running.take_over()
        await replica_of(running)

        chats = [[message.start.split()[1] for message in engine.asked].count(CHAT.encode()) for engine in (old, new)]
        assert chats == [0, 1]
        await old.stop()


async def test_a_replica_that_moves_to_another_pool_serves_there(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"], "other": ["b"]}) as running:
        running.write({"chat": ["b"], "other": ["a"]})
        await running.take_over()

        await running.replicas_named("a", "b")
        assert await replica_of(running) == "b"


async def test_a_file_that_is_watched_is_loaded_again_when_it_changes(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}, reload={"watch": True}) as running:
        await running.engine("b")
        running.write({"chat": ["b"]}, reload={"watch": True})

        await running.replicas_named("b")
        await running.reaches("steplane_config_reloads_total", 1, outcome="applied")


async def test_a_secret_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_TOKEN", "s3cret-one")
    (tmp_path / "token").write_text("s3cret-two\n")
    async with site(tmp_path, {"chat": ["a"]}, chat__feed_token="${FEED_TOKEN}") as running:
        running.file.write_text(running.file.read_text().replace("${FEED_TOKEN}", "!file token"))
        text = str(await running.reload()) + str(await running.ask_admin("GET", "/api/v1/config?full=true"))

        assert "pools.chat.feed_token" in text
        assert "s3cret" not in text
