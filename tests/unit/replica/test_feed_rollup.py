"""What a reader that wants few lines gets: sums of all steps, and only the dear ones in full."""

from typing import Any

import pytest

from replica.feed.rollup import Rollup, dear
from replica.recorder.records import HookKind, HookTime, StepRecord

FILL, ACCEPT, STOP = HookKind.grammar_fill, HookKind.grammar_accept, HookKind.stop


def step(*hooks: tuple[str | None, HookKind, float], cpu_us: float | None = None, **fields: Any) -> StepRecord:
    hook_us = sum(us for _, _, us in hooks)
    return StepRecord(
        **{
            "seq": 1,
            "start_s": 0.0,
            "step_us": hook_us + 1000.0,
            "forward_us": 1000.0,
            "hook_us": hook_us,
            "cpu_us": hook_us if cpu_us is None else cpu_us,
            "mode": "decode",
            "sequences": 2,
            "prompt_tokens": 0,
            "after_idle": False,
            "cold": (),
            "hooks": tuple(HookTime(*hook) for hook in hooks),
        }
        | fields
    )


def rolled_up(*steps: StepRecord) -> dict[str, Any]:
    rollup = Rollup()
    for record in steps:
        rollup.add(record)
    return rollup.take(9, 1e9)


def test_a_rollup_adds_up_steps_and_what_is_own_to_each_request() -> None:
    line = rolled_up(
        step(("a", FILL, 100.0), ("a", ACCEPT, 20.0), ("b", STOP, 5.0), (None, HookKind.other, 50.0)),
        step(("a", FILL, 300.0), sequences=3),
    )
    assert (line["event"], line["after"], line["at"]) == ("rollup", 9, 1e9)
    assert (line["steps"], line["starved"], line["sequences"]) == (2, 0, 5)
    assert (line["hook_us"], line["forward_us"]) == (475.0, 2000.0)
    assert (line["step_us"], line["step_max_us"]) == (2475.0, 1300.0)
    assert line["requests"] == {
        "a": {"steps": 2, "sum_us": 420.0, "max_us": 300.0, "kinds": {"grammar_fill": 400.0, "grammar_accept": 20.0}},
        "b": {"steps": 1, "sum_us": 5.0, "max_us": 5.0, "kinds": {"stop": 5.0}},
    }


def test_a_step_that_was_starved_of_cpu_is_counted_and_charged_to_nobody() -> None:
    line = rolled_up(step(("a", FILL, 50_000.0), cpu_us=900.0), step(("a", FILL, 100.0)))
    assert (line["steps"], line["starved"]) == (2, 1)
    assert line["requests"]["a"] == {"steps": 1, "sum_us": 100.0, "max_us": 100.0, "kinds": {"grammar_fill": 100.0}}


def test_of_a_requests_time_counts_what_the_step_thread_worked() -> None:
    line = rolled_up(step(("a", FILL, 800.0), ("b", FILL, 200.0), cpu_us=700.0))
    assert {rid: own["sum_us"] for rid, own in line["requests"].items()} == {"a": 560.0, "b": 140.0}
    assert line["requests"]["a"]["kinds"] == {"grammar_fill": 560.0}


def test_hooks_that_still_warm_up_are_nobodys() -> None:
    record = step(("a", FILL, 900_000.0), ("a", STOP, 7.0), ("b", FILL, 3.0), cold=(FILL,))
    assert record.judged() == {"a": {STOP: 7.0}}
    assert rolled_up(record)["requests"] == {
        "a": {"steps": 1, "sum_us": 7.0, "max_us": 7.0, "kinds": {"stop": 7.0}},
    }


def test_a_rollup_that_was_taken_begins_anew() -> None:
    rollup = Rollup()
    record = step(("a", FILL, 100.0))
    rollup.add(record)
    rollup.take(1, 0.0)
    assert rollup.steps == 0
    assert rollup.take(2, 0.0)["requests"] == {}


def test_a_rollup_of_very_many_requests_is_full_early() -> None:
    rollup = Rollup()
    for number in range(1000):
        if rollup.full:
            break
        record = step((f"r{number}", FILL, 1.0))
        rollup.add(record)
    assert 100 < number < 999


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"a": 100.0}, {"a"}),
        ({"a": 99.0}, set()),
        ({"a": 100.0, "b": 10.0}, {"a"}),
        # Many that take little each are nobody's guilt.
        ({f"r{number}x": 50.0 for number in range(10)}, set()),
        # The sequences of one request count together, however its engine names them.
        ({"a_0": 60.0, "a_1": 60.0, "b_0": 60.0}, {"a_0", "a_1"}),
        ({"a_0_7": 60.0, "a_1_8": 60.0}, {"a_0_7", "a_1_8"}),
        ({"0_chatcmpl-a-0123abcd": 60.0, "1_chatcmpl-a-0123abcd": 60.0, "b": 1.0}, None),
        ({"cmpl-a-0-0123abcd": 60.0, "cmpl-a-1-99999999": 60.0}, {"cmpl-a-0-0123abcd", "cmpl-a-1-99999999"}),
        ({"12ab34cd56ef-0000000000a1": 60.0, "12ab34cd56ef-0000000000a2": 60.0}, set()),
    ],
)
def test_a_step_is_worth_a_line_for_requests_that_took_much_of_it(
    own: dict[str, float], named: set[str] | None
) -> None:
    if named is None:
        named = {rid for rid in own if "chatcmpl" in rid}
    assert set(dear(step(*((rid, FILL, us) for rid, us in own.items())), 100.0)) == named


@pytest.mark.parametrize(("cpu_us", "named"), [(1000.0, {"a"}), (500.0, {"a"}), (300.0, set()), (200.0, set())])
def test_a_step_is_worth_no_line_for_time_in_which_its_thread_waited(cpu_us: float, named: set[str]) -> None:
    assert set(dear(step(("a", FILL, 1000.0), cpu_us=cpu_us), 400.0)) == named
