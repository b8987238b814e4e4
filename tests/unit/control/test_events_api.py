"""All that the dashboard shows, once and live."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from gateway.control.dashboard.overview import Overview
from gateway.control.dashboard.totals import pool_totals
from gateway.routing.router import Decision
from tests.unit.control.admins import BOMB, CONFIG, Admin, running_admin

FEATURES: dict[str, Any] = {"features": {}, "by_hook": {}}


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with running_admin(CONFIG) as running:
        yield running


async def overview(admin: Admin) -> Any:
    return (await admin.client.get("/api/v1/overview")).json()


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, orjson.loads(line.removeprefix("data: "))


async def test_the_overview_has_a_section_for_each_part_of_the_page(admin: Admin) -> None:
    await admin.probed()
    admin.admit("i1", "q1")

    shown = await overview(admin)

    assert list(shown["pools"]) == ["interactive", "grammar", "quarantine"]
    assert (
        shown["pools"]["interactive"].items()
        >= {"available": True, "states": {"up": 1}, "spills_to": "grammar"}.items()
    )
    assert shown["replicas"]["g1"].items() >= {"state": "down", "why": "connection refused", "pool": "grammar"}.items()
    assert list(shown["rules"]) == ["structured", "default"]
    assert shown["rules"]["structured"].items() >= {"when": {"grammar": "any"}, "to": "grammar", "hits": 0}.items()
    assert shown["configuration"]["loaded"].items() >= {"source": None, "last_reload": None}.items()
    assert shown["status"]["line"]["level"] == "bad"
    assert [each["key"] for each in shown["status"]["line"]["findings"]] == ["pool:grammar", "replica:g1"]


async def test_an_offender_is_shown_with_what_it_cost_why_it_is_barred_and_until_when(admin: Admin) -> None:
    admin.trip()

    shown = (await overview(admin))["offenders"][f"signature/{BOMB}"]

    assert shown.items() >= {"state": "open", "tenant": "acme", "trips": 1, "pool": "interactive"}.items()
    assert shown["observed"]["max_us"] == 2600.0
    assert "over the step budget" in shown["why"]
    assert shown["until"] > shown["since"]


async def test_what_costs_most_is_shown_though_it_is_not_barred(admin: Admin) -> None:
    admin.observe(300.0)

    assert (await overview(admin))["offenders"][f"signature/{BOMB}"]["state"] == "closed"


async def test_a_rule_that_is_written_as_the_last_one_is_shown_once_with_its_requests() -> None:
    async with running_admin(CONFIG + "  - {name: default, pool: interactive}\n") as admin:
        pool = admin.context.router.pools["interactive"]
        admin.context.tally.finished(Decision(pool, "default"), 200, False, 0.1)

        rules = (await overview(admin))["rules"]

    assert list(rules) == ["structured", "default"]
    assert rules["default"]["hits"] == 1


async def test_the_events_begin_with_all_and_go_on_with_what_changes(admin: Admin) -> None:
    async with admin.client.stream("GET", "/api/v1/events") as response:
        assert response.headers["content-type"] == "text/event-stream"
        coming = events(response)
        name, first = await anext(coming)
        assert (name, list(first["history"])) == ("snapshot", list(first["pools"]))
        admin.trip()
        while True:
            name, change = await anext(coming)
            assert name == "change"
            if "offenders" in change:
                break
        assert change["offenders"][f"signature/{BOMB}"]["state"] == "open"
        assert "rules" not in change


async def test_the_steps_in_which_a_signature_was_named_are_told(admin: Admin) -> None:
    admin.oversight.named = admin.context.memory.namings.add
    admin.observe(2500.0)

    (step,) = (await admin.client.get(f"/api/v1/quarantine/{BOMB}/steps")).json()["steps"]

    assert step.items() >= {"what": "step", "us": 2500.0, "replica": "i1", "stack": None}.items()


async def test_totals_are_read_off_the_parts(admin: Admin) -> None:
    pools = admin.context.router.pools
    tally = admin.context.tally
    tally.finished(Decision(pools["interactive"], "default"), 200, False, 0.1, pools["interactive"].replicas[0])
    tally.finished(Decision(pools["grammar"], "default", spilled_from="interactive"), 502, False, -1.0)
    tally.quarantined["grammar", "refused"] += 3
    pools["interactive"].book(pools["interactive"].replicas[0], 250.0)

    totals = await pool_totals(admin.context)

    assert (totals["interactive"].requests, totals["interactive"].spills) == (1, 1)
    assert (totals["grammar"].requests, totals["grammar"].failed, totals["grammar"].rejects) == (1, 1, 3)
    assert (totals["interactive"].in_flight, totals["interactive"].booked_us) == (1, 250.0)
    assert totals["interactive"].ttft == totals["interactive"].first_bytes["i1"]
    assert sum(totals["interactive"].ttft) == 1


async def test_a_replica_shows_its_last_errors_newest_first(admin: Admin) -> None:
    admin.context.tally.upstream_error("grammar", "g1", "died", "g1 closed in mid-response")
    admin.context.tally.note_error("g1", "answered", "answered 503")

    shown = (await overview(admin))["replicas"]["g1"]

    assert [(each["kind"], each["said"]) for each in shown["last_errors"]] == [
        ("answered", "answered 503"),
        ("died", "g1 closed in mid-response"),
    ]
    assert shown["errors"] == {"died": 1}


async def test_since_when_something_is_wrong_is_known_though_nobody_has_watched(admin: Admin) -> None:
    watcher = Overview(admin.context)
    admin.admit("i1", "g1", "q1")
    await watcher.look()
    admin.admit("i1", "g1")
    admin.now_s += 100.0
    await watcher.look()
    gone_at = admin.now_s
    admin.now_s += 3600.0

    findings = (await watcher.compose())["status"]["line"]["findings"]

    assert {each["key"]: each["since"] for each in findings}["pool:quarantine"] == gone_at


async def test_decisions_are_kept_while_somebody_watches_those_that_he_wants_to_see(admin: Admin) -> None:
    decisions = admin.context.memory.decisions
    watched: list[bool] = []
    decisions.on_watched = watched.append

    def decide(rule: str, step_us: float) -> None:
        decisions.add({"pool": "grammar", "rule": rule, "tenant": "acme", "step_us": step_us} | FEATURES)

    async with admin.client.stream("GET", "/api/v1/decisions?rule=structured&min_us=100") as response:
        coming = events(response)
        assert await anext(coming) == ("decisions", {"decisions": [], "left_out": 0})
        assert watched == [True]
        decide("default", 500.0)
        decide("structured", 99.0)
        decide("structured", 100.0)
        found: list[Any] = []
        while not found:
            found = (await anext(coming))[1]["decisions"]

    assert [(each["rule"], each["step_us"]) for each in found] == [("structured", 100.0)]


async def test_of_many_decisions_a_second_some_are_left_out_and_counted(admin: Admin) -> None:
    decisions = admin.context.memory.decisions
    decisions._clock = lambda: 5.0

    assert [decisions.wants() for _ in range(150)].count(True) == 100
    decisions._clock = lambda: 6.0
    assert decisions.wants()


async def test_what_is_no_number_is_refused_before_the_stream_begins(admin: Admin) -> None:
    refused = await admin.client.get("/api/v1/decisions?min_us=much")

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_query")


async def test_a_browser_gets_the_page_with_nothing_from_elsewhere_and_programs_the_list(admin: Admin) -> None:
    page = await admin.client.get("/", headers={"accept": "text/html,*/*"})
    listed = await admin.client.get("/")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
    assert "://" not in page.text
    assert listed.json()["name"] == "steplane"
    again = await admin.client.get("/dashboard", headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304
    script = await admin.client.get("/dashboard/app.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (await admin.client.get("/dashboard/..%2fpage.py")).status_code == 404


async def test_a_replica_is_ejected_by_hand_unless_it_is_the_last() -> None:
    text = CONFIG.replace('[{url: "http://127.0.0.1:1", name: i1}]', '["http://127.0.0.1:1", "http://127.0.0.1:4"]')
    async with running_admin(text) as admin:
        by = {"author": "ann", "reason": "its GPU is hot"}
        admin.admit("127.0.0.1:1", "127.0.0.1:4")

        done = await admin.client.post("/api/v1/replicas/127.0.0.1:1/eject", json=by)
        last = await admin.client.post("/api/v1/replicas/127.0.0.1:4/eject", json=by)

        assert (done.status_code, done.json()["what"]) == (200, "ejected")
        breakers = admin.context.breakers["interactive"].snapshot()
        assert (breakers[0]["state"], breakers[0]["reason"]) == ("open", "ann: its GPU is hot")
        assert last.status_code == 409
        assert "no other replica" in last.json()["error"]["message"]
