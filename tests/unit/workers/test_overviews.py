"""One page out of what several workers say."""

from typing import Any

import pytest

from gateway.workers.overviews import merge_histories, merge_overviews, merge_replica_histories, merge_steps

POOL: dict[str, Any] = {
    "available": True,
    "budget_us": 500.0,
    "budget_use": 0.5,
    "booked": 0.25,
    "in_flight": 2,
    "waiting": 1,
    "per_s": 1.5,
    "per_minute": 90,
    "failed": 1.0,
    "spills": 0.0,
    "rejects": 2.0,
    "oldest_s": 0.5,
    "ttft": [],
    "itl_p50_us": 7000.0,
    "itl_p99_us": 9000.0,
    "hook_us": 250.0,
    "forward_us": 6000.0,
}
REPLICA: dict[str, Any] = {
    "state": "up",
    "pool": "p",
    "in_flight": 1,
    "waiting": 0,
    "per_s": 2.0,
    "booked": 0.25,
    "budget_us": 500.0,
    "budget_use": 0.5,
    "ttft": [0, 2],
    "itl_p50_us": 7000.0,
    "itl_p99_us": 9000.0,
    "hook_us": 250.0,
    "forward_us": 6000.0,
    "errors": {"reset": 1},
    "last_errors": [{"at": 1.0, "kind": "reset"}],
}

OFFENDER = {"state": "open", "looks": None, "predicted_us": 31.0, "predicted_ms": 1.0, "tenant": None}


def overview(**changes: Any) -> dict[str, Any]:
    return {
        "gateway": {"about": {"version": "1", "clients": 3}},
        "status": {"line": {"level": "ok", "findings": []}},
        "pools": {"p": POOL},
        "replicas": {"r": REPLICA},
        "offenders": {"signature/a": OFFENDER},
        "configuration": {"loaded": {"source": "g.yaml"}},
        "rules": {"default": {"at": 0, "hits": 4}},
        "columns": ["at", "hook_us"],
        "history": {"p": {"seconds": [[1.0, None], [2.0, 900.0], [3.0, 1100.0]], "minutes": []}},
        "replica_columns": ["at", "hook_us"],
        "replica_history": {"r": [[3.0, 1100.0]]},
    } | changes


def test_what_each_has_its_part_of_is_added_up() -> None:
    merged = merge_overviews([overview(), overview()])

    assert merged["gateway"]["about"].items() >= {"clients": 6, "workers": 2}.items()
    assert (
        merged["pools"]["p"].items()
        >= {"in_flight": 4, "per_s": 3.0, "booked": 0.5, "budget_us": 500.0, "budget_use": 0.5}.items()
    )
    replica = merged["replicas"]["r"]
    assert (
        replica.items() >= {"state": "up", "in_flight": 2, "per_s": 4.0, "booked": 0.5, "errors": {"reset": 2}}.items()
    )
    assert replica["last_errors"] == REPLICA["last_errors"] * 2
    assert merged["rules"]["default"]["hits"] == 8


def test_times_to_first_byte_are_those_of_all_requests_whoever_carried_them() -> None:
    many = overview(pools={"p": POOL | {"ttft": [0, 0, 0, 98]}}, replicas={"r": REPLICA | {"ttft": [100]}})
    few = overview(pools={"p": POOL | {"ttft": [0, 0, 0, 0, 0, 2]}})

    merged = merge_overviews([many, few])

    pool, replica = merged["pools"]["p"], merged["replicas"]["r"]
    assert (pool["ttft"], replica["ttft"]) == ([0, 0, 0, 98, 0, 2], [100, 2])
    assert (pool["ttft_p50_s"], pool["ttft_p99_s"]) == (pytest.approx(0.04, abs=0.01), pytest.approx(0.18, abs=0.08))
    assert replica["ttft_p50_s"] == pytest.approx(0.003)


def test_of_what_all_see_alike_one_word_is_taken() -> None:
    other = overview(offenders={"signature/a": OFFENDER | {"state": "closed"}, "signature/b": OFFENDER})

    merged = merge_overviews([overview(), other])

    assert merged["offenders"] == {"signature/a": OFFENDER, "signature/b": OFFENDER}
    assert merged["configuration"]["loaded"]["source"] == "g.yaml"
    assert merged["pools"]["p"]["ttft_p99_s"] is None


def test_what_requests_look_like_and_whose_they_are_is_told_by_who_knows_it() -> None:
    knows = {"looks": {"title": "Trip"}, "predicted_us": 60.0, "predicted_ms": 2.0, "tenant": "acme"}
    other = overview(offenders={"signature/a": OFFENDER | {"state": "closed"} | knows})

    assert merge_overviews([overview(), other])["offenders"]["signature/a"] == OFFENDER | knows


def test_what_is_wrong_with_any_is_wrong_since_the_first_has_seen_it() -> None:
    def finding(level: str, since: float) -> dict[str, Any]:
        return {"line": {"level": level, "findings": [{"key": "a", "level": level, "said": "…", "since": since}]}}

    line = merge_overviews([overview(), overview(status=finding("warn", 9.0)), overview(status=finding("warn", 5.0))])

    assert line["status"]["line"]["level"] == "warn"
    assert [each["since"] for each in line["status"]["line"]["findings"]] == [5.0]


def test_histories_are_put_together_from_the_newest_second_on() -> None:
    columns = ["at", "requests", "failed", "spills", "rejects", "in_flight", "waiting", "booked_us", "hook_us"]

    def history(*requests: float) -> dict[str, Any]:
        rows = [[float(at), each, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 50.0] for at, each in enumerate(requests)]
        return {"columns": columns, "history": {"p": {"seconds": rows, "minutes": []}}}

    merged = merge_histories([history(1.0, 2.0, 3.0), history(10.0, 20.0)])

    assert [row[1] for row in merged["p"]["seconds"]] == [1.0, 12.0, 23.0]
    assert [row[-1] for row in merged["p"]["seconds"]] == [50.0, 50.0, 50.0]


def test_a_replicas_minute_is_that_of_the_worker_that_has_seen_most_of_it() -> None:
    rows = [[1.0, 50.0], [2.0, 60.0]]

    merged = merge_replica_histories([overview(replica_history={"r": rows[1:]}), overview(replica_history={"r": rows})])

    assert merged == {"r": rows}


def test_steps_of_all_are_told_newest_first() -> None:
    merged = merge_steps([{"steps": [{"at": "2026-01-01T00:00:01Z"}]}, {"steps": [{"at": "2026-01-01T00:00:02Z"}]}])

    assert [each["at"][-3:] for each in merged["steps"]] == ["02Z", "01Z"]
