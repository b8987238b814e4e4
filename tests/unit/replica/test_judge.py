"""Who is over a limit, and who only seems to be."""

import pytest

from replica.recorder.judge import WARM_UP_RUNS, Judge, Limits, StepCost
from replica.recorder.records import HookKind, Limit

FILL, ACCEPT = HookKind.grammar_fill, HookKind.grammar_accept


def warm_judge(**limits: float) -> Judge:
    judge = Judge(Limits(**limits))  # type: ignore[arg-type]
    for kind in HookKind:
        for _ in range(WARM_UP_RUNS + 1):
            judge.ran(kind)
    return judge


def cost(own_us: dict[str, float], *, hook_us: float | None = None, cpu_us: float = 1e9) -> StepCost:
    total = sum(own_us.values()) if hook_us is None else hook_us
    return StepCost(total, cpu_us, {rid: {FILL: us} for rid, us in own_us.items()})


@pytest.mark.parametrize(
    ("own_us", "blamed"),
    [
        ({"a": 1200.0}, "a"),
        ({"a": 900.0, "b": 200.0}, "a"),
        ({"a": 100.0, "b": 2000.0, "c": 150.0}, "b"),
        ({"a": 400.0, "b": 300.0, "c": 310.0}, "a"),
        ({f"r{n}": 20.0 for n in range(64)}, None),
        ({"a": 999.0}, None),
        ({}, None),
    ],
)
def test_the_hard_limit_blames_whoever_stands_out(own_us: dict[str, float], blamed: str | None) -> None:
    judge = warm_judge(hard_us=1000.0)
    assert [verdict.rid for verdict in judge.step(0.0, cost(own_us))] == ([] if blamed is None else [blamed])


def test_a_verdict_says_what_was_over_by_how_much() -> None:
    judge = warm_judge(hard_us=1000.0)
    own = {"a": {FILL: 4000.0, ACCEPT: 100.0}}
    (verdict,) = judge.step(0.0, StepCost(4100.0, 4100.0, own))
    assert (verdict.limit, verdict.kind, verdict.us, verdict.limit_us) == (Limit.hard, FILL, 4100.0, 1000.0)
    assert verdict.reason == (
        "step_budget_exceeded: hooks of one step took 4.1 ms, the limit is 1 ms (mostly grammar_fill)"
    )


def test_time_in_which_the_thread_did_not_run_is_nobodys_fault() -> None:
    judge = warm_judge(hard_us=1000.0, budget_us=100.0, soft_steps=1)
    assert judge.step(0.0, cost({"a": 5000.0}, cpu_us=40.0)) == []


def test_first_runs_of_a_kind_are_taken_for_warming_up() -> None:
    judge = Judge(Limits(hard_us=1000.0))
    seen = []
    for step in range(WARM_UP_RUNS + 2):
        judge.ran(FILL)
        seen.append(bool(judge.step(float(step), cost({"a": 5000.0}))))
    assert seen == [False] * WARM_UP_RUNS + [True] * 2


@pytest.mark.parametrize(
    ("over_at_s", "found_at"),
    [
        ([0, 1, 2], 2),
        ([0, 1, 11, 12], None),
        ([0, 9, 10, 10.5], 10),
        ([0, 1], None),
    ],
)
def test_the_soft_limit_is_a_number_of_steps_within_a_window(over_at_s: list[float], found_at: float | None) -> None:
    judge = warm_judge(hard_us=0.0, budget_us=100.0, soft_steps=3, soft_window_s=10.0)
    found = [at for at in over_at_s if judge.step(at, cost({"a": 150.0, "b": 10.0}))]
    assert found[:1] == ([] if found_at is None else [found_at])


def test_the_soft_limit_does_not_abort_unless_told_to() -> None:
    for abort in (False, True):
        judge = warm_judge(hard_us=0.0, budget_us=100.0, soft_steps=1, abort_soft=abort)
        assert [verdict.abort for verdict in judge.step(0.0, cost({"a": 150.0}))] == [abort]


@pytest.mark.parametrize(
    ("limit_ms", "waited_ms", "over"), [(1000.0, 1001.0, True), (1000.0, 999.0, False), (0, 9e9, False)]
)
def test_a_compile_has_its_own_limit(limit_ms: float, waited_ms: float, over: bool) -> None:
    verdict = warm_judge(compile_ms=limit_ms).compile("a", waited_ms)
    assert (verdict is not None) is over
    if verdict is not None:
        assert verdict.reason == "step_budget_exceeded: its grammar was not compiled within 1000 ms"


def test_limits_of_zero_are_off() -> None:
    judge = warm_judge(hard_us=0.0, budget_us=0.0)
    assert not judge.suspects(1e12)
    assert judge.step(0.0, cost({"a": 1e12})) == []


def test_habits_of_many_requests_are_forgotten_oldest_first() -> None:
    judge = warm_judge(hard_us=0.0, budget_us=100.0, soft_steps=2, soft_window_s=1e9)
    judge.step(0.0, cost({"first": 150.0}))
    for number in range(5000):
        judge.step(1.0, cost({f"r{number}": 150.0}))
    assert judge.step(2.0, cost({"first": 150.0})) == []
    assert [verdict.rid for verdict in judge.step(2.0, cost({"r4999": 150.0}))] == ["r4999"]
