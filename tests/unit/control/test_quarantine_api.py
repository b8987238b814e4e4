from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.control.admins import BOMB, OTHER, Admin, running_admin

SRE = {"author": "sre", "reason": "floods us"}


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin() as running:
        yield running


async def quarantined(admin: Admin, **query: str) -> Any:
    reply = await admin.client.get("/api/v1/quarantine", params=query)
    assert reply.status_code == 200
    return reply.json()


async def shown(admin: Admin, key: str) -> Any:
    reply = await admin.client.get(f"/api/v1/quarantine/{key}")
    assert reply.status_code == 200
    return reply.json()


async def error_of(admin: Admin, method: str, path: str, **body: object) -> tuple[int, str, str]:
    reply = await admin.client.request(method, path, json=body or None)
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


async def test_a_signature_that_tripped_is_listed_with_what_was_over_which_limit_and_how_to_fix_it(
    admin: Admin,
) -> None:
    assert (await quarantined(admin))["quarantined"] == []

    admin.trip()
    admin.now_s += 10

    answer = await quarantined(admin)
    record = answer["quarantined"][0]
    assert (answer["total"], answer["by_state"], answer["quarantine_pool"]) == (1, {"open": 1}, "quarantine")
    assert answer["now"] == "1970-01-12T13:46:50.000Z"
    assert record | {"trip": None} == {
        "kind": "signature",
        "key": BOMB,
        "state": "open",
        "since": "1970-01-12T13:46:40.000Z",
        "until": "1970-01-12T13:47:10.000Z",
        "cause": "over_budget",
        "why": "3 steps within 10 s were over the step budget of pool 'interactive': up to 2.6 ms of hook time, "
        "2.6 times the budget of 1 ms, mostly by grammar_fill",
        "advice": record["advice"],
        "author": "breaker",
        "reason": "",
        "tenant": "acme",
        "pool": "interactive",
        "trips": 1,
        "probes": 0,
        "good_probes": 0,
        "next_probe": None,
        "trip": None,
    }
    assert record["trip"].items() >= {"observed": 2600, "limit": 1000, "unit": "us", "times_over": 2.6}.items()
    assert record["trip"].items() >= {"count": 3, "replica": "i1", "hook": "grammar_fill"}.items()
    assert "maxLength" in record["advice"]


async def test_the_newest_come_first_and_as_many_as_are_wanted(admin: Admin) -> None:
    for number in range(5):
        admin.now_s += 1
        admin.trip(f"s1-{number:016x}", tenant="")

    answer = await quarantined(admin, limit="2")

    assert (answer["total"], [each["key"][-1] for each in answer["quarantined"]]) == (5, ["4", "3"])


async def test_one_is_shown_with_its_cost_what_runs_of_it_and_what_was_done_to_it(admin: Admin) -> None:
    admin.trip()
    origin = admin.run()
    admin.run(OTHER)

    answer = await shown(admin, BOMB)

    assert answer["record"]["state"] == "open"
    assert answer["observed"].items() >= {"steps": 3, "mean_us": 2500, "max_us": 2600, "quarantine": "open"}.items()
    assert answer["running"] == [
        {
            "request_id": origin.request_id,
            "tenant": "acme",
            "pool": "interactive",
            "replica": "i1",
            "runs_s": 3.0,
        }
    ]
    assert [(entry["event"], entry["author"], entry["after"]) for entry in answer["audit"]] == [
        ("trip", "breaker", "open")
    ]


async def test_one_that_costs_little_is_shown_as_closed_and_one_that_nobody_knows_is_not_found(admin: Admin) -> None:
    admin.observe(10.0, signature=OTHER)

    answer = await shown(admin, OTHER)

    assert (answer["record"]["state"], answer["record"]["since"], answer["record"]["cause"]) == ("closed", None, None)
    assert answer["observed"]["quarantine"] is None
    assert (await error_of(admin, "GET", f"/api/v1/quarantine/{BOMB}"))[:2] == (404, "unknown")


@pytest.mark.parametrize(
    ("more", "state", "lasts_s"),
    [({}, "open", 30), ({"wait_s": 600}, "open", 600), ({"pin": True}, "pinned", None)],
)
@pytest.mark.parametrize("what", [{"signature": BOMB}, {"tenant": "acme corp/eu"}])
async def test_quarantine_by_hand_lasts_as_long_as_was_wanted(
    admin: Admin, what: dict[str, str], more: dict[str, object], state: str, lasts_s: float | None
) -> None:
    reply = await admin.client.post("/api/v1/quarantine", json=what | SRE | more)

    record = reply.json()["record"]
    assert reply.status_code == 201
    assert (record["kind"], record["key"]) == next(iter(what.items()))
    assert (record["state"], record["cause"], record["author"]) == (state, "manual", "sre")
    assert record["why"] == record["reason"] == "floods us"
    barred = admin.context.trust.snapshot()[0]
    assert barred.until is None if lasts_s is None else barred.until == admin.now_s + lasts_s
    assert reply.json()["store"]["connected"] is True


async def test_what_is_released_is_closed_and_its_trips_are_forgotten(admin: Admin) -> None:
    admin.trip()

    reply = await admin.client.post(f"/api/v1/quarantine/{BOMB}/release", json=SRE)

    assert reply.status_code == 200
    assert reply.json()["record"].items() >= {"state": "closed", "trips": 0, "why": "", "author": "sre"}.items()
    assert (await quarantined(admin))["total"] == 0


async def test_a_tenant_whose_name_has_slashes_is_found_again(admin: Admin) -> None:
    await admin.client.post("/api/v1/quarantine", json={"tenant": "a/b c?"} | SRE)
    admin.run(OTHER, tenant="a/b c?")

    answer = await shown(admin, "a%2Fb%20c%3F")
    reply = await admin.client.post("/api/v1/quarantine/a%2Fb%20c%3F/release", json=SRE)

    assert (answer["record"]["kind"], len(answer["running"])) == ("tenant", 1)
    assert reply.json()["record"]["state"] == "closed"


async def test_a_tenant_that_is_named_like_a_signature_is_told_from_it_by_the_kind(admin: Admin) -> None:
    await admin.client.post("/api/v1/quarantine", json={"tenant": BOMB} | SRE)
    admin.trip(BOMB, tenant="")

    reply = await admin.client.post(f"/api/v1/quarantine/{BOMB}/release?kind=tenant", json=SRE)

    assert reply.json()["record"]["kind"] == "tenant"
    assert [each["kind"] for each in (await quarantined(admin))["quarantined"]] == ["signature"]


async def test_running_requests_of_what_is_added_are_counted_and_evicted(admin: Admin) -> None:
    evicted: list[str] = []
    admin.oversight.evict = evicted.append
    admin.run()

    reply = await admin.client.post("/api/v1/quarantine", json={"signature": BOMB} | SRE)

    assert (reply.json()["running"], evicted) == (1, [BOMB])


async def test_the_audit_log_tells_who_did_what_newest_first(admin: Admin) -> None:
    admin.trip()
    admin.now_s += 1
    await admin.client.post("/api/v1/quarantine", json={"signature": BOMB, "pin": True} | SRE)
    admin.now_s += 1
    await admin.client.post("/api/v1/quarantine", json={"tenant": "acme"} | SRE)

    everything = (await admin.client.get("/api/v1/audit")).json()
    of_one = (await admin.client.get("/api/v1/audit", params={"key": BOMB, "limit": "1"})).json()

    assert [(entry["key"], entry["author"], entry["event"]) for entry in everything["entries"]] == [
        ("acme", "sre", "add"),
        (BOMB, "sre", "pin"),
        (BOMB, "breaker", "trip"),
    ]
    assert (of_one["total"], [entry["event"] for entry in of_one["entries"]]) == (2, ["pin"])
    assert everything["entries"][0]["why"] == "floods us"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "expected a value"),
        (SRE, "expected either a signature or a tenant"),
        ({"signature": BOMB, "tenant": "a"} | SRE, "expected either a signature or a tenant"),
        ({"signature": "bomb"} | SRE, "signature: expected a cost signature, such as s1-"),
        ({"tenant": "t" * 129} | SRE, "tenant: expected text of at most 128 characters"),
        ({"tenant": "a", "author": "sre"}, "reason: expected a value"),
        ({"tenant": "a", "author": "sre", "reason": "  "}, "reason: expected some text"),
        ({"tenant": "a", "author": "sre", "reason": "r" * 501}, "reason: expected text of at most 500 characters"),
        ({"tenant": "a", "author": "breaker", "reason": "r"}, "author: expected the name of a person"),
        ({"tenant": "a", "wait_s": 0} | SRE, "wait_s: expected a number above 0, found 0"),
        ({"tenant": "a", "wait_s": "5"} | SRE, "wait_s: expected a number, found '5'"),
        ({"tenant": "a", "wait_s": 1e9} | SRE, "expected a wait_s of at most 31622400"),
        ({"tenant": "a", "wait_s": 5, "pin": True} | SRE, "expected either wait_s or pin"),
        ({"tenat": "a"} | SRE, "did you mean tenant?"),
    ],
)
async def test_a_body_that_is_wrong_is_answered_with_what_was_expected(
    admin: Admin, body: dict[str, object], said: str
) -> None:
    reply = await admin.client.post("/api/v1/quarantine", json=body)

    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "invalid_body")
    assert said in error["message"]
    assert (await quarantined(admin))["total"] == 0


async def test_a_page_in_a_browser_can_not_send_what_changes_something(admin: Admin) -> None:
    content = b'{"tenant": "acme", "author": "sre", "reason": "x"}'

    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        reply = await admin.client.post("/api/v1/quarantine", content=content, headers={"content-type": content_type})
        assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert (await quarantined(admin))["total"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "said"),
    [
        ("POST", f"/api/v1/quarantine/{BOMB}/release", 404, "not_quarantined", "is not quarantined"),
        ("POST", "/api/v1/quarantine/nobody/release", 404, "not_quarantined", "tenant 'nobody' is not quarantined"),
        ("GET", "/api/v1/quarantine?limit=0", 400, "invalid_query", "limit: expected a whole number from 1"),
        ("GET", "/api/v1/audit?limit=x", 400, "invalid_query", "found 'x'"),
        ("GET", f"/api/v1/quarantine/{BOMB}?kind=pool", 400, "invalid_query", "expected signature or tenant"),
        ("DELETE", "/api/v1/quarantine", 405, "method_not_allowed", "takes GET"),
    ],
)
async def test_what_can_not_be_done_says_why(
    admin: Admin, method: str, path: str, status: int, code: str, said: str
) -> None:
    found = await error_of(admin, method, path, **SRE)

    assert found[:2] == (status, code)
    assert said in found[2]


async def test_what_is_pinned_is_not_added_for_a_time(admin: Admin) -> None:
    await admin.client.post("/api/v1/quarantine", json={"signature": BOMB, "pin": True} | SRE)

    found = await error_of(admin, "POST", "/api/v1/quarantine", signature=BOMB, wait_s=5, **SRE)

    assert found == (409, "pinned", f"signature '{BOMB}' is pinned by sre (floods us): release it first")


async def test_json_that_is_broken_is_refused(admin: Admin) -> None:
    headers = {"content-type": "application/json"}

    reply = await admin.client.post("/api/v1/quarantine", content=b"{", headers=headers)

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")
