import json
from collections.abc import AsyncIterator

import orjson
import pytest

from gateway import __version__
from gateway.breaker.outcome import Outcome
from gateway.control.explain import Asked, explain
from tests.unit.control.admins import Admin, running_admin


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as running:
        yield running


async def test_it_is_alive_as_soon_as_it_answers(admin: Admin) -> None:
    reply = await admin.client.get("/healthz")

    assert (reply.status_code, reply.json()) == (200, {"status": "alive"})


async def test_it_is_ready_once_replicas_were_probed_and_any_pool_can_take_requests(admin: Admin) -> None:
    async def readiness() -> tuple[int, str | None]:
        reply = await admin.client.get("/readyz")
        assert reply.json()["ready"] is (reply.status_code == 200)
        return reply.status_code, reply.json()["reason"]

    admin.admit("i1", "g1")
    assert await readiness() == (503, "replicas have not been probed yet")

    await admin.probed()
    admin.admit()
    assert await readiness() == (503, "no replica of any pool is available")

    admin.admit("g1")
    assert await readiness() == (200, None)
    assert (await admin.client.get("/readyz")).json()["pools"] == {
        "interactive": False,
        "grammar": True,
        "quarantine": False,
    }

    admin.draining = True
    assert await readiness() == (503, "draining")


async def test_pools_and_replicas_are_listed_with_load_and_state(admin: Admin) -> None:
    await admin.probed()
    admin.admit("i1")
    pool = admin.context.router.pools["interactive"]
    for _ in range(3):
        pool.book(pool.replicas[0])

    pools = (await admin.client.get("/api/v1/pools")).json()["pools"]
    replicas = (await admin.client.get("/api/v1/replicas")).json()["replicas"]

    assert [pool["name"] for pool in pools] == ["interactive", "grammar", "quarantine"]
    assert pools[0] | {"replicas": None, "queue": None} == {
        "name": "interactive",
        "available": True,
        "quarantine": False,
        "step_budget_us": 1000,
        "hard_limit_us": 20_000,
        "compile_limit_ms": 5000,
        "on_open": "quarantine",
        "on_trip": "rerun",
        "max_in_flight": None,
        "max_structured": None,
        "when_full": "wait",
        "when_unavailable": {"spill": "grammar"},
        "balance": "least_requests",
        "grammar_backend": None,
        "capabilities": None,
        "in_flight": 3,
        "queue": None,
        "discovery": None,
        "replicas": None,
    }
    assert pools[0]["queue"].items() >= {"waiting": 0, "oldest_s": 0, "size": 1000, "max_wait_s": 30, "full": 0}.items()
    assert (pools[1]["available"], pools[1]["when_unavailable"], pools[1]["on_open"]) == (False, "reject", "refuse")
    assert [pool["quarantine"] for pool in pools] == [False, False, True]
    assert [[replica["name"] for replica in pool["replicas"]] for pool in pools] == [["i1"], ["g1"], ["q1"]]
    assert [(replica["name"], replica["pool"], replica["available"]) for replica in replicas] == [
        ("i1", "interactive", True),
        ("g1", "grammar", False),
        ("q1", "quarantine", False),
    ]
    assert replicas[1]["last_error"] == "connection refused"
    assert replicas[1]["state_age_s"] >= 0
    assert replicas[1]["probe_ms"] is None


async def test_a_replica_is_shown_with_its_breaker_its_source_and_what_is_booked_on_it(admin: Admin) -> None:
    pool = admin.context.router.pools["interactive"]
    pool.book(pool.replicas[0], 400.0, structured=True)
    admin.context.breakers["interactive"].observe("i1", Outcome.fault)
    admin.now_s += 7.00049

    shown = (await admin.client.get("/api/v1/replicas")).json()["replicas"][0]

    assert shown.items() >= {"booked_us": 400, "step_budget_us": 1000, "structured": 1, "in_flight": 1}.items()
    assert shown["guests"] == 0
    assert shown.items() >= {"healthy": False, "idle_connections": 0}.items()
    assert shown.items() >= {"weight": 1, "zone": None, "elsewhere": 0, "cache_usage": None}.items()
    assert shown["breaker"].items() >= {"state": "closed", "since_s": 7.0, "faults_in_a_row": 1}.items()
    assert shown["source"].items() >= {"source": "none", "feed_url": "http://127.0.0.1:1001", "lost": 0}.items()


async def test_metrics_come_in_prometheus_text_and_in_openmetrics(admin: Admin) -> None:
    text = await admin.client.get("/metrics")
    openmetrics = await admin.client.get("/metrics", headers={"accept": "application/openmetrics-text"})

    assert text.headers["content-type"].startswith("text/plain")
    assert 'steplane_replica_up{pool="grammar",replica="g1"} 0.0' in text.text
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


async def test_explain_decides_for_the_body_that_was_posted_with_the_replicas_as_they_are(admin: Admin) -> None:
    async def explained(body: bytes, **query: str) -> dict[str, object]:
        reply = await admin.client.post("/api/v1/explain", params=query, content=body)
        assert reply.status_code == 200
        explanation: dict[str, object] = reply.json()
        return explanation

    admin.admit("i1", "g1")
    body = b'{"messages": [], "response_format": {"type": "json_object"}}'
    assert (await explained(body))["route"] == "structured"
    assert (await explained(body, path="/v1/embeddings"))["route"] == "default"
    assert (await explained(b"{"))["pool"] is None

    admin.admit("g1")
    assert (await explained(b'{"messages": []}'))["spilled_from"] == "interactive"


async def test_explain_names_what_costs_and_where_just_as_the_command_does(admin: Admin) -> None:
    body = b'{"messages": [], "guided_json": {"properties": {"a": {"type": "string", "pattern": "^.{1,255}$"}}}}'
    context = admin.context

    posted = (await admin.client.post("/api/v1/explain", content=body)).json()

    assert posted["places"][0]["pointer"] == "/properties/a"
    assert posted["contributions"][0]["name"] == "counted_class"
    path = "/v1/chat/completions"
    printed = explain(context.router, context.classifier, context.config.hookcost, Asked(path, body))
    assert posted == json.loads(orjson.dumps(printed))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/api/v1/explain", 405, "method_not_allowed"),
        ("POST", "/api/v1/explain", 413, "body_too_large"),
    ],
)
async def test_errors_have_the_shape_of_openais(admin: Admin, method: str, path: str, status: int, code: str) -> None:
    reply = await admin.client.request(method, path, content=b" " * 2000 if status == 413 else b"")

    assert reply.status_code == status
    error = reply.json()["error"]
    assert error["code"] == code
    assert error["type"] == "invalid_request_error"
    assert error["message"]


async def test_a_method_that_is_not_allowed_names_those_that_are(admin: Admin) -> None:
    reply = await admin.client.get("/api/v1/explain")

    assert reply.headers["allow"] == "POST"


async def test_a_failure_inside_is_answered_and_does_not_say_more_than_it_should(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("gateway.control.api.explain.explain_in_turns", broken)

    reply = await admin.client.post("/api/v1/explain", content=b"{}")

    assert reply.status_code == 500
    assert reply.json()["error"]["type"] == "server_error"
    assert "secret" not in reply.text
    assert "secret" in capsys.readouterr().out


async def test_the_index_lists_what_there_is(admin: Admin) -> None:
    index = (await admin.client.get("/")).json()

    assert index["version"] == __version__
    assert "GET /metrics" in index["endpoints"]
