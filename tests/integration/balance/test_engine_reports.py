"""What engines say of themselves, asked over real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from gateway.control.assembly import build_router
from gateway.control.config import Config, parse_config
from gateway.enginereports import EngineReports
from gateway.feed.loads import EngineLoad, ask_load
from gateway.feed.serverfacts import ServerFacts, ask_facts
from gateway.feed.session import open_session
from gateway.routing.capabilities import Capabilities
from gateway.routing.pool import Pool
from tests.integration.wire.harness import PATIENCE_S, until

LOADS = {"loads": [{"num_running_reqs": 7, "num_waiting_reqs": 2, "token_usage": 0.25}]}
TWO_RANKS = {
    "loads": [
        {"num_running_reqs": 1, "num_waiting_reqs": 0, "token_usage": 0.5},
        {"num_running_reqs": 2, "num_waiting_reqs": 3, "token_usage": 0.1},
    ]
}
METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.75
"""


@dataclass
class Engine:
    """Answers each path with JSON, text, or 404; `answers` may change at any time."""

    answers: dict[str, Any]
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        found = self.answers.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.Response(text=found) if isinstance(found, str) else web.json_response(found)


@asynccontextmanager
async def serving(answers: dict[str, Any]) -> AsyncIterator[Engine]:
    engine = Engine(answers)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("kind", "answers", "load"),
    [
        ("sglang", {"/v1/loads": LOADS}, EngineLoad(7, 2, 0.25)),
        ("sglang", {"/v1/loads": TWO_RANKS}, EngineLoad(3, 3, 0.3)),
        ("sglang", {"/get_load": [{"dp_rank": 0, "num_reqs": 9, "num_waiting_reqs": 2}]}, EngineLoad(7, 2, None)),
        ("sglang", {"/v1/loads": {"loads": []}}, None),
        ("sglang", {"/v1/loads": {"loads": [{"num_running_reqs": "many"}]}}, None),
        ("sglang", {"/v1/loads": "<html>"}, None),
        ("sglang", {}, None),
        ("vllm", {"/metrics": METRICS}, EngineLoad(4, 1, 0.75)),
        ("vllm", {"/metrics": METRICS.replace("kv_cache", "gpu_cache")}, EngineLoad(4, 1, 0.75)),
        ("vllm", {"/metrics": "python_info 1\n"}, None),
        ("other", {"/v1/loads": LOADS, "/metrics": METRICS}, None),
    ],
)
async def test_an_engine_s_load_is_read_from_where_it_says_it(
    kind: str, answers: dict[str, Any], load: EngineLoad | None
) -> None:
    session = open_session("loads")
    async with serving(answers) as engine:
        assert await ask_load(session, engine.url, kind, PATIENCE_S) == load
    await session.close()


async def test_a_server_that_is_not_there_says_nothing() -> None:
    session = open_session("loads")
    async with serving({}) as engine:
        url = engine.url
    assert await ask_load(session, url, "sglang", PATIENCE_S) is None
    assert await ask_facts(session, url, "sglang", PATIENCE_S) is None
    await session.close()


def models(*names: str, parent: str | None = None) -> list[dict[str, Any]]:
    return [{"id": name, "object": "model", "parent": parent} for name in names]


@pytest.mark.parametrize(
    ("kind", "answers", "facts"),
    [
        (
            "sglang",
            {
                "/v1/models": {"data": models("m")},
                "/server_info": {
                    "served_model_name": "m",
                    "grammar_backend": "llguidance",
                    "speculative_algorithm": "EAGLE",
                    "lora_paths": [{"lora_name": "a", "lora_path": "/x"}, "b=/y"],
                },
            },
            ServerFacts("llguidance", True, frozenset({"m"}), frozenset({"a", "b"})),
        ),
        (
            "sglang",
            {"/server_info": {"grammar_backend": "none", "speculative_algorithm": None, "lora_paths": {"a": "/x"}}},
            ServerFacts(None, False, frozenset(), frozenset({"a"})),
        ),
        (
            "vllm",
            {
                "/v1/models": {"data": [*models("m"), *models("a", parent="m")]},
                "/server_info": {"grammar_backend": "x"},
            },
            ServerFacts(None, False, frozenset({"m"}), frozenset({"a"})),
        ),
        ("sglang", {"/v1/models": {"data": "none"}}, ServerFacts()),
        ("sglang", {}, None),
    ],
)
async def test_what_an_engine_was_started_with_is_read(
    kind: str, answers: dict[str, Any], facts: ServerFacts | None
) -> None:
    session = open_session("loads")
    async with serving(answers) as engine:
        assert await ask_facts(session, engine.url, kind, PATIENCE_S) == facts
    await session.close()


@dataclass
class Fleet:
    """The pools of one configuration, all replicas up."""

    config: Config
    pools: dict[str, Pool]


@asynccontextmanager
async def reporting(text: str) -> AsyncIterator[Fleet]:
    config = parse_config(text)
    fleet = Fleet(config, dict(build_router(config, available=True).pools))
    reports = EngineReports(fleet)
    reports.start()
    try:
        yield fleet
    finally:
        await reports.close()


async def test_what_others_run_at_an_engine_counts_beside_what_is_ours() -> None:
    async with serving({"/v1/loads": LOADS}) as engine:
        text = f"default_pool: p\npools: {{p: {{replicas: [{engine.url}], balance: engine_load}}}}"
        async with reporting(text.replace("balance", "loads: {interval_s: 0.05}, balance")) as fleet:
            replica = fleet.pools["p"].replicas[0]
            for _ in range(3):
                fleet.pools["p"].book(replica)
            await until(lambda: replica.elsewhere == 6.0)
            assert replica.cache_usage == 0.25


async def test_what_an_engine_said_is_forgotten_when_it_says_no_more() -> None:
    async with serving({"/v1/loads": LOADS}) as engine:
        loads = "loads: {interval_s: 0.05, stale_s: 0.3}"
        text = f"default_pool: p\npools: {{p: {{replicas: [{engine.url}], balance: engine_load, {loads}}}}}"
        async with reporting(text) as fleet:
            replica = fleet.pools["p"].replicas[0]
            await until(lambda: replica.elsewhere == 9.0)
            engine.answers.clear()
            await until(lambda: (replica.elsewhere, replica.cache_usage) == (0.0, -1.0))


async def test_nobody_is_asked_where_nothing_is_made_of_it() -> None:
    async with serving({"/v1/loads": LOADS}) as idle, serving({"/v1/loads": LOADS}) as busy:
        text = f"""
default_pool: p
pools:
  p: {{replicas: [{idle.url}], balance: power_of_two}}
  q: {{replicas: [{busy.url}], balance: {{score: [{{cache_usage: 1}}]}}}}
"""
        async with reporting(text) as fleet:
            await until(lambda: fleet.pools["q"].replicas[0].cache_usage == 0.25)
            assert idle.asked == []


async def test_a_pool_can_take_what_all_its_engines_say_that_they_can() -> None:
    plain = {
        "/server_info": {"grammar_backend": "llguidance", "speculative_algorithm": None, "served_model_name": "m"},
        "/v1/models": {"data": [*models("m"), *models("a", "b", parent="m")]},
    }
    drafting = {
        "/server_info": plain["/server_info"] | {"speculative_algorithm": "EAGLE"},
        "/v1/models": {"data": [*models("m", "n"), *models("a", parent="m")]},
    }
    async with serving(plain) as one, serving(drafting) as other:
        can = "capabilities: {from_server: true, max_top_logprobs: 5}"
        text = f"default_pool: p\npools: {{p: {{replicas: [{one.url}, {other.url}], {can}}}}}"
        async with reporting(text) as fleet:
            pool = fleet.pools["p"]
            wanted = Capabilities(grammar=False, max_top_logprobs=5, models=frozenset({"m"}), lora=frozenset({"a"}))
            assert pool.capabilities == Capabilities(max_top_logprobs=5)
            await until(lambda: pool.capabilities == wanted)
            assert pool.backend == "llguidance"


async def test_what_the_configuration_says_goes_before_what_engines_say() -> None:
    info = {"grammar_backend": "xgrammar", "speculative_algorithm": "EAGLE", "served_model_name": "m"}
    async with serving({"/server_info": info}) as engine:
        can = "capabilities: {from_server: true, grammar_with_speculative: true, models: [alias], lora: [x]}"
        text = f"default_pool: p\npools: {{p: {{replicas: [{engine.url}], grammar_backend: outlines, {can}}}}}"
        async with reporting(text) as fleet:
            await until(lambda: "/server_info" in engine.asked)
            await until(lambda: fleet.pools["p"].capabilities is not None)
            assert fleet.pools["p"].capabilities == Capabilities(models=frozenset({"alias"}), lora=frozenset({"x"}))
            assert fleet.pools["p"].backend == "outlines"
