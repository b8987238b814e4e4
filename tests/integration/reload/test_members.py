"""Replicas that people add, drain and take out by the API, and what becomes of that in a reload."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.gateway.harness import CHAT, EVENT, LAST, PLAIN, SSE_HEAD, Held, chunk, request
from tests.integration.wire.harness import PATIENCE_S

from .harness import Site, site

REPLICAS = "/api/v1/pools/chat/replicas"


async def add(running: Site, name: str, pool: str = "chat") -> tuple[int, dict[str, object]]:
    body = {"url": running.engines[name].url, "name": name}
    return await running.ask_admin("POST", f"/api/v1/pools/{pool}/replicas", body)


async def test_a_replica_that_is_added_serves_and_stays_through_a_reload_until_it_is_taken_out(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        await running.engine("b")
        status, answer = await add(running, "b")
        assert (status, answer["what"], answer["pool"]) == (201, "added", "chat")
        await running.replicas_named("a", "b")

        running.write({"chat": ["a"]}, chat__step_budget_us=5)
        await running.take_over()
        await running.replicas_named("a", "b")

        assert (await running.ask_admin("DELETE", f"{REPLICAS}/b"))[0] == 200
        await running.replicas_named("a")


async def test_a_replica_of_the_file_that_is_taken_out_stays_out_while_the_file_names_it(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a", "b"]}) as running:
        await running.ask_admin("DELETE", f"{REPLICAS}/b")
        await running.replicas_named("a")

        running.write({"chat": ["a", "b"]}, chat__step_budget_us=5)
        await running.take_over()
        await running.replicas_named("a")

        running.write({"chat": ["a"]})
        await running.take_over()
        running.write({"chat": ["a", "b"]})
        await running.take_over()
        await running.replicas_named("a", "b")


async def test_what_was_taken_out_can_be_added_again(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a", "b"]}) as running:
        await running.ask_admin("DELETE", f"{REPLICAS}/b")
        assert (await add(running, "b"))[0] == 201
        await running.replicas_named("a", "b")


async def test_a_drained_replica_finishes_what_runs_gets_nothing_new_and_stays_drained(tmp_path: Path) -> None:
    held = Held(SSE_HEAD + EVENT, chunk(b"data: [DONE]\n\n") + LAST)
    async with site(tmp_path, {"chat": ["a"]}, answer=held) as running:
        client = await running.client()
        await client.send(request(CHAT, PLAIN[CHAT] | {"stream": True}))
        await asyncio.wait_for(held.arrived.wait(), PATIENCE_S)
        await running.engine("b")
        await add(running, "b")
        await running.replicas_named("a", "b")

        _, answer = await running.ask_admin("POST", f"{REPLICAS}/a/drain")
        assert (answer["draining"], answer["in_flight"]) == (True, 1)
        for _ in range(3):
            assert (await running.ask(CHAT, PLAIN[CHAT])).header(b"x-steplane-replica") == b"b"
        held.finish.set()
        assert (await client.response(b"POST")).body.endswith(b"data: [DONE]\n\n")

        running.write({"chat": ["a"]}, chat__step_budget_us=5)
        await running.take_over()
        await running.replicas_named("b")
        await running.ask_admin("POST", "/api/v1/replicas/a/undrain")
        await running.replicas_named("a", "b")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/api/v1/pools/none/replicas", {"url": "http://h:1"}, 404, "unknown_pool"),
        ("POST", REPLICAS, {"url": "h:1"}, 400, "invalid_body"),
        ("POST", REPLICAS, {"url": "http://h:1", "name": "a"}, 409, "replica_exists"),
        ("DELETE", f"{REPLICAS}/none", None, 404, "unknown_replica"),
        ("POST", f"{REPLICAS}/none/drain", None, 404, "unknown_replica"),
        ("POST", "/api/v1/pools/none/replicas/a/drain", None, 404, "unknown_pool"),
        ("POST", "/api/v1/replicas/none/undrain", None, 404, "unknown_replica"),
    ],
)
async def test_what_can_not_be_done_says_why(
    tmp_path: Path, method: str, path: str, body: object, status: int, code: str
) -> None:
    async with site(tmp_path, {"chat": ["a"]}) as running:
        got, answer = await running.ask_admin(method, path, body)

        assert (got, answer["error"]["code"]) == (status, code)
        assert answer["error"]["message"]
