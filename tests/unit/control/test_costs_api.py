from collections.abc import AsyncIterator

import pytest

from gateway.hookcost.observation import CompileObservation
from tests.unit.control.admins import BOMB, OTHER, Admin, running_admin


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as running:
        yield running


async def test_the_dearest_signatures_come_first_with_what_was_observed_of_them(admin: Admin) -> None:
    admin.observe(10.0, 20.0, 30.0, signature=OTHER)
    admin.observe(900.0, 700.0, signature=BOMB)
    admin.oversight.compiled(CompileObservation(admin.origin(BOMB), admin.now_s, 12.0))
    admin.now_s += 60

    answer = (await admin.client.get("/api/v1/costs")).json()
    dearest = (await admin.client.get("/api/v1/costs?top=1")).json()["costs"]

    assert answer["signatures"] == 2
    assert [(each["signature"], each["mean_us"], each["steps"]) for each in answer["costs"]] == [
        (BOMB, 800, 2),
        (OTHER, 20, 3),
    ]
    assert [each["signature"] for each in dearest] == [BOMB]
    assert dearest[0]["last_seen"] == "1970-01-12T13:46:40.000Z"
    assert (
        dearest[0].items()
        >= {"max_us": 900, "compile_max_ms": 12, "compiles": 1, "by_kind": {"grammar_fill": 800}}.items()
    )
    assert dearest[0]["predicted"] is None


async def test_one_signature_is_shown_beside_what_was_predicted_for_its_newest_request(admin: Admin) -> None:
    body = b'{"messages": [], "response_format": {"type": "json_object"}}'
    explanation = (await admin.client.post("/api/v1/explain", content=body)).json()
    admin.observe(4000.0, signature=explanation["signature"])

    again = (await admin.client.post("/api/v1/explain", content=body)).json()
    cost = (await admin.client.get(f"/api/v1/costs/{explanation['signature']}")).json()

    predicted = explanation["predicted"]
    assert cost["predicted"] == {"step_us": predicted["step_us"], "compile_ms": predicted["compile_ms"]}
    assert cost["mean_us"] == 4000
    assert predicted["step_us"] < again["cost"]["step_us"] < 4000
    assert again["observed"]["mean_us"] == 4000
    assert explanation["observed"] is None


@pytest.mark.parametrize("path", [f"/api/v1/costs/{BOMB}", "/api/v1/costs/nonsense"])
async def test_a_signature_of_which_nothing_was_observed_is_not_found(admin: Admin, path: str) -> None:
    reply = await admin.client.get(path)

    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_observed")


@pytest.mark.parametrize("top", ["0", "1001", "-1", "many", "1e3", "9" * 5000, ""])
async def test_a_count_that_is_none_is_refused(admin: Admin, top: str) -> None:
    reply = await admin.client.get("/api/v1/costs", params={"top": top})

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_query")


async def test_the_state_tells_where_things_are_kept_and_how_many(admin: Admin) -> None:
    admin.trip()
    admin.run()
    admin.now_s += 5

    state = (await admin.client.get("/api/v1/state")).json()

    assert state["store"].items() >= {"kind": "memory", "connected": True, "pending": 0, "since_s": 5.0}.items()
    assert state["kept"].items() >= {"signatures": 1, "tenants": 0, "costs": 1, "running": 1}.items()
