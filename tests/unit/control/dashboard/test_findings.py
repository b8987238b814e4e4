"""The first line of the page: what is wrong, worst first, and since when."""

from typing import Any

import pytest

from gateway.control.dashboard.findings import (
    Finding,
    Findings,
    of_configuration,
    of_pools,
    of_quarantine,
    of_replicas,
    of_store,
)

POOL = {
    "available": True,
    "spills_to": None,
    "oldest_s": 0.0,
    "max_wait_s": 30.0,
    "waiting": 0,
    "per_minute": 100,
    "failed": 0,
}
REPLICA = {"state": "up", "why": "", "since": 900.0, "feed_lost": False}


def test_nothing_found_is_healthy() -> None:
    assert Findings().document([], 1000.0) == {"level": "ok", "findings": []}


def test_the_worst_comes_first_and_gives_its_level_to_the_line() -> None:
    line = Findings().document([Finding("a", "warn", "slow"), Finding("b", "bad", "gone")], 1000.0)

    assert line["level"] == "bad"
    assert [each["key"] for each in line["findings"]] == ["b", "a"]


def test_what_nobody_else_dates_is_dated_by_when_it_was_first_found() -> None:
    findings = Findings()
    findings.document([Finding("a", "warn", "slow")], 1000.0)

    later = findings.document([Finding("a", "warn", "slower"), Finding("b", "warn", "down", since=5.0)], 1010.0)
    assert {each["key"]: each["since"] for each in later["findings"]} == {"a": 1000.0, "b": 5.0}

    findings.document([], 1020.0)
    assert findings.document([Finding("a", "warn", "slow")], 1030.0)["findings"][0]["since"] == 1030.0


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({}, []),
        ({"available": False}, ["pool p has no replica that takes requests"]),
        (
            {"available": False, "spills_to": "q"},
            ["pool p has no replica that takes requests; its requests go to q"],
        ),
        ({"waiting": 4, "oldest_s": 16.0}, ["4 requests wait for pool p, the oldest for 16 s"]),
        ({"failed": 5}, []),
        ({"failed": 6}, ["6% of the requests of pool p failed (5xx) lately"]),
        ({"failed": 6, "per_minute": 10}, []),
    ],
)
def test_of_a_pool(pool: dict[str, Any], said: list[str]) -> None:
    assert [each.said for each in of_pools({"p": POOL | pool})] == said


@pytest.mark.parametrize(
    ("replica", "said"),
    [
        ({}, []),
        ({"state": "draining"}, []),
        ({"state": "down", "why": "connection refused"}, ["replica r is down: connection refused"]),
        (
            {"state": "ejected", "why": "5 requests failed in a row"},
            ["replica r is ejected: 5 requests failed in a row"],
        ),
        ({"state": "trial"}, ["replica r is on trial after an ejection"]),
        ({"feed_lost": True}, ["the step feed of replica r is gone: its hook time is not seen"]),
        ({"feed_lost": True, "state": "down"}, ["replica r is down"]),
    ],
)
def test_of_a_replica(replica: dict[str, Any], said: list[str]) -> None:
    assert [each.said for each in of_replicas({"r": REPLICA | replica})] == said


def test_of_quarantine_how_much_and_since_the_first() -> None:
    entries = {
        "a": {"state": "open", "since": 50.0},
        "b": {"state": "pinned", "since": 40.0},
        "c": {"state": "closed", "since": 1.0},
    }

    (found,) = of_quarantine(entries)

    assert (found.said, found.since) == ("2 kinds of requests are quarantined", 40.0)
    assert not list(of_quarantine({"c": entries["c"]}))


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (None, []),
        ({"why": None, "needs_restart": [], "at": 1.0}, []),
        (
            {"why": "g.yaml:3:1: pools: expected …", "needs_restart": [], "at": 1.0},
            ["the last reload failed, the old configuration stays in force: g.yaml:3:1: pools: expected …"],
        ),
        (
            {"why": None, "needs_restart": ["listen", "state"], "at": 1.0},
            ["only a restart takes over what has changed in listen, state"],
        ),
    ],
)
def test_of_the_configuration(last: dict[str, Any] | None, said: list[str]) -> None:
    assert [each.said for each in of_configuration({"last_reload": last, "failing_since": 0.5})] == said


def test_reloads_fail_since_the_first_that_did() -> None:
    last = {"why": "g.yaml:3:1: …", "needs_restart": [], "at": 9.0}

    (found,) = of_configuration({"last_reload": last, "failing_since": 5.0})

    assert found.since == 5.0


def test_of_the_store() -> None:
    assert not list(of_store("memory", True, 1.0))
    assert [each.key for each in of_store("redis", False, 1.0)] == ["store"]
