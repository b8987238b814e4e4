"""Two workers under load: they are asked, renewed and killed, and clients notice as little of it as can be.

One supervisor for all of these tests, which follow each other.
"""

import contextlib
import os
import signal
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tests.integration.workers.harness import Load, Replica, Serving, open_stream, read_event, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RENEWALS = int(os.environ.get("STEPLANE_TEST_RENEWALS", "1"))
BY_HAND: dict[str, object] = {"signature": "s1-0123456789abcdef", "author": "me", "reason": "a test", "pin": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    async with Replica() as replica:
        serving = Serving(tmp_path_factory.mktemp("workers"), replica)
        try:
            await serving.start()
            yield serving
        finally:
            code = await serving.end()
        assert code == 0


async def generation(serving: Serving) -> int:
    _, document = await serving.get("/api/v1/workers")
    number: int = document["generation"]
    return number


async def test_the_admin_port_answers_for_all_of_them(serving: Serving) -> None:
    _, ready = await serving.get("/readyz")
    assert ready == {"ready": True, "reason": None, "pools": {"only": True}, "workers": 2}
    _, pools = await serving.get("/api/v1/pools")
    # Each has half of it.
    assert pools["pools"][0]["step_budget_us"] == 1000
    assert [worker["budget"] for worker in await serving.workers()] == [{"only": 0.5}, {"only": 0.5}]
    _, index = await serving.get("/")
    assert {"GET /metrics", "POST /api/v1/restart"} <= set(index["endpoints"])
    status, error = await serving.get("/api/v1/nothing")
    assert (status, error["error"]["code"]) == (404, "not_found")
    status, error = await serving.post("/api/v1/quarantine", {"signature": "what"})
    assert (status, error["error"]["code"]) == (400, "invalid_body")


async def test_the_live_page_shows_all_of_them_as_one_and_the_decisions_of_each(serving: Serving) -> None:
    async with Load(serving.port) as load, aiohttp.ClientSession(serving.admin) as session:
        await load.more()
        async with session.get("/api/v1/events") as response:
            name, first = await read_event(response)
            assert name == "snapshot"
            assert first["gateway"]["about"]["workers"] == 2
            assert first["pools"]["only"]["budget_us"] == 1000
            hits = first["rules"]["default"]["hits"]
            while first.get("rules", {}).get("default", {}).get("hits", 0) <= hits:
                name, first = await read_event(response)
                assert name == "change"
        replicas: set[str] = set()
        async with session.get("/api/v1/decisions") as response:
            while not replicas:
                replicas |= {each["replica"] for each in (await read_event(response))[1]["decisions"]}
        assert replicas == {"r1"}
    async with aiohttp.ClientSession(serving.admin) as session:
        async with session.get("/", headers={"accept": "text/html"}) as page:
            assert page.content_type == "text/html"
        async with session.get("/api/v1/pools", headers={"host": "evil.example"}) as refused:
            assert refused.status == 403


async def test_renewals_under_load_cost_no_request_and_no_connection_and_lose_no_count(serving: Serving) -> None:
    before = await serving.metric("steplane_requests_total")
    async with Load(serving.port) as load:
        for _ in range(RENEWALS):
            await load.more()
            following = await generation(serving) + 1
            serving.signal(signal.SIGUSR2)
            await serving.settled(following)
        await load.more()
    assert set(load.outcomes) == {"200"}
    assert await serving.metric("steplane_requests_total") - before == load.answered
    assert await serving.metric("steplane_worker_restarts_total") == 0


async def test_a_worker_that_is_killed_is_replaced_while_the_other_serves_and_counts_never_shrink(
    serving: Serving,
) -> None:
    status, _ = await serving.post("/api/v1/quarantine", BY_HAND)
    assert status == 201
    victim = (await serving.pids())[0]
    async with Load(serving.port) as load:
        await load.more()
        before = await serving.metric("steplane_requests_total")
        os.kill(victim, signal.SIGKILL)
        await until(lambda: serving.logged("worker died"), "noticed")
        counts = [before]
        # While one is missing and once it is back.
        while await serving.metric("steplane_workers_serving") != 2 or victim in await serving.pids():
            await load.more(5)
            counts.append(await serving.metric("steplane_requests_total"))
        await load.more()
        counts.append(await serving.metric("steplane_requests_total"))
    assert counts == sorted(counts)
    assert counts[-1] > before
    # What ran on it is lost, at most one request of each client, and nobody was refused.
    lost = sum(count for outcome, count in load.outcomes.items() if outcome != "200")
    assert lost <= load.clients
    assert not any("Refused" in outcome or "Timeout" in outcome for outcome in load.outcomes)
    assert serving.logged("worker died")[0]["how"] == "killed by SIGKILL"
    # The new one knows what the dead one knew: both are asked in turn.
    for _ in range(4):
        _, shown = await serving.get(f"/api/v1/quarantine/{BY_HAND['signature']}")
        assert shown["record"]["state"] == "pinned"
    assert await serving.metric("steplane_worker_restarts_total") == 1


async def test_a_reload_and_what_people_change_reach_all_workers_and_those_that_come_later(serving: Serving) -> None:
    text = serving.config.read_text()
    read, died = len(serving.logged("config_reload")), len(serving.logged("worker died"))
    serving.config.write_text(text.replace("step_budget_us: 1000", "step_budget_us: 2000"))
    serving.signal(signal.SIGHUP)
    await until(lambda: len(serving.logged("config_reload")) == read + 2, "both have read it")
    status, _ = await serving.post("/api/v1/replicas/r1/drain")
    assert status == 200
    assert await budgets(serving) == [2000] * 4
    victim = (await serving.pids())[0]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: len(serving.logged("worker died")) == died + 1, "noticed")
    await serving.settled(await generation(serving))
    # Both are asked in turn, and each answers for both.
    assert await budgets(serving) == [2000] * 4
    _, pools = await serving.get("/api/v1/pools")
    assert pools["pools"][0]["replicas"][0]["available"] is False
    status, _ = await serving.post("/api/v1/replicas/r1/undrain")
    assert status == 200


async def budgets(serving: Serving) -> list[float]:
    """What all workers together may use, asked a few times."""
    found: list[float] = []
    for _ in range(4):
        _, document = await serving.get("/api/v1/pools")
        found.append(document["pools"][0]["step_budget_us"])
    return found


async def test_workers_lend_each_other_what_they_do_not_need_and_never_exceed_it_together(serving: Serving) -> None:
    text, replica = serving.config.read_text(), serving.replica
    serving.config.write_text(text.replace("feed: off", "feed: off\n    admission: {max_in_flight: 8}"))
    read = len(serving.logged("config_reload"))
    serving.signal(signal.SIGHUP)
    await until(lambda: len(serving.logged("config_reload")) == read + 2, "both have read it")
    replica.may_end.clear()
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_stream(serving.port)) for _ in range(12)]
        # Of eight each has four; however the system spreads the connections, at most one stays unused.
        await until(lambda: replica.streams >= 7, "lent")
        assert replica.streams <= 8
        replica.may_end.set()
        for stream in streams:
            await stream.readuntil(b"\r\n\r\n")


async def test_a_bad_configuration_renews_nobody_and_says_why(serving: Serving) -> None:
    before, good = await serving.pids(), serving.config.read_text()
    serving.config.write_text(good.replace("default_pool: only", "default_pool: nowhere"))
    status, answer = await serving.post("/api/v1/restart")
    assert status == 409
    assert "nowhere" in answer["error"]["message"]
    serving.signal(signal.SIGUSR2)
    await until(lambda: serving.logged("workers go on as they were"), "said so")
    assert await serving.pids() == before
    serving.config.write_text(good)


async def test_a_new_number_of_workers_is_taken_up_by_a_renewal_and_no_socket_is_left(serving: Serving) -> None:
    async with Load(serving.port) as load:
        await load.more()
        serving.config.write_text(serving.config.read_text().replace("workers: 2", "workers: 1"))
        status, answer = await serving.post("/api/v1/restart")
        assert (status, answer["workers"]) == (200, 1)
        workers = await serving.settled(answer["generation"], 1)
        assert workers[0]["accepts"] == [0, 1]
        await load.more()
    assert set(load.outcomes) == {"200"}
