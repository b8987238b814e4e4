"""Records become observations of requests: whose they are, and when nobody is to be blamed."""

from collections.abc import Mapping

import pytest

from gateway.feed.attribution import Attribution
from gateway.feed.records import Compile, Offence, Rollup, Share, Step
from gateway.feed.running import RunningRequests
from gateway.feed.target import Target
from gateway.hookcost.observation import Limit
from tests.unit.feed.attempts import REPLICA, Attempt, Told, attempt


class Desk:
    """An attribution with two requests running, `a` and `b`."""

    def __init__(self) -> None:
        self.told = Told()
        self.running = RunningRequests()
        self.a, self.b = attempt("a", "s1-a"), attempt("b", "s1-b")
        self.add("a", self.a)
        self.add("b", self.b)
        target = Target(REPLICA, "http://127.0.0.1:1", compile_limit_ms=500.0)
        self.attribution = Attribution(target, self.running, self.told, lambda: 7.0)

    def add(self, engine_id: str, what: Attempt) -> None:
        self.running.add(engine_id, what)


def step(
    requests: Mapping[str, Mapping[str, float]], *, hook_us: float | None = None, cpu_us: float | None = None
) -> Step:
    total = sum(sum(kinds.values()) for kinds in requests.values())
    hook_us = total if hook_us is None else hook_us
    return Step(3, 0.0, 9000.0, hook_us, hook_us if cpu_us is None else cpu_us, requests)


def rollup(requests: Mapping[str, Share], *, starved: int = 0) -> Rollup:
    return Rollup(3, 0.0, 100, starved, 1e6, 2e4, 9e5, 1e5, 800, requests)


def test_each_request_of_a_step_is_observed_with_what_was_its_own() -> None:
    desk = Desk()
    desk.attribution.step(step({"a": {"grammar_fill": 900.0, "stop": 100.0}, "b": {"logprobs": 300.0}}))
    first, second = desk.told.steps
    assert (first.origin, first.at_s, first.own_us) == (desk.a.origin, 7.0, 1000.0)
    assert first.kinds == {"grammar_fill": 900.0, "stop": 100.0}
    assert (second.origin, second.own_us) == (desk.b.origin, 300.0)


def test_sequences_of_one_request_are_added_up_before_they_are_judged() -> None:
    desk = Desk()
    desk.attribution.step(step({"a_0": {"stop": 400.0}, "a_1": {"stop": 500.0, "logprobs": 1.0}, "b": {"stop": 2.0}}))
    assert [(seen.origin.request_id, seen.own_us) for seen in desk.told.steps] == [("a", 901.0), ("b", 2.0)]
    assert desk.told.steps[0].kinds == {"stop": 900.0, "logprobs": 1.0}


@pytest.mark.parametrize(
    ("hook_us", "cpu_us", "blamed"),
    [(1000.0, 1000.0, True), (1000.0, 250.0, True), (1000.0, 249.0, False), (1e6, 0.0, False)],
)
def test_a_step_that_was_starved_of_cpu_blames_nobody(hook_us: float, cpu_us: float, blamed: bool) -> None:
    desk = Desk()
    desk.attribution.step(step({"a": {"stop": hook_us}}, cpu_us=cpu_us))
    assert bool(desk.told.steps) is blamed


def test_of_a_requests_time_counts_what_the_step_thread_worked() -> None:
    desk = Desk()
    desk.attribution.step(step({"a": {"stop": 600.0, "logprobs": 200.0}, "b": {"stop": 200.0}}, cpu_us=500.0))
    assert [seen.own_us for seen in desk.told.steps] == [400.0, 100.0]
    assert desk.told.steps[0].kinds == {"stop": 300.0, "logprobs": 100.0}


def test_requests_of_others_are_counted_and_told_to_nobody() -> None:
    desk = Desk()
    desk.attribution.step(step({"theirs": {"stop": 1e6}, "a": {"stop": 10.0}}))
    desk.attribution.compile(Compile(4, "theirs", 1.0, None))
    desk.attribution.rollup(rollup({"theirs_0": Share(1, 1.0, 1.0, {})}))
    assert desk.attribution.unattributed == 3
    assert [seen.origin.request_id for seen in desk.told.steps] == ["a"]
    assert not desk.told.compiles
    assert not desk.told.rollups


def test_a_record_that_comes_after_the_end_of_its_request_still_finds_it() -> None:
    desk = Desk()
    desk.running.discard("a", desk.a)
    desk.attribution.step(step({"a": {"stop": 10.0}}))
    assert [seen.origin for seen in desk.told.steps] == [desk.a.origin]


def test_a_rollup_is_told_by_request() -> None:
    desk = Desk()
    desk.attribution.rollup(
        rollup(
            {
                "a_0": Share(100, 1000.0, 40.0, {"stop": 1000.0}),
                "a_1": Share(90, 900.0, 30.0, {"stop": 800.0, "logprobs": 100.0}),
                "b": Share(1, 5.0, 5.0, {"stop": 5.0}),
            },
            starved=3,
        )
    )
    first, second = desk.told.rollups
    assert (first.origin.request_id, first.steps, first.sum_us, first.max_us) == ("a", 100, 1900.0, 70.0)
    assert first.kinds == {"stop": 1800.0, "logprobs": 100.0}
    assert (second.origin.request_id, second.steps, second.sum_us, second.max_us) == ("b", 1, 5.0, 5.0)
    assert desk.attribution.starved == 3


def test_a_compile_comes_with_the_limit_of_the_pool() -> None:
    desk = Desk()
    desk.attribution.compile(Compile(4, "chatcmpl-a-0123abcd", 812.5, "no such rule"))
    (seen,) = desk.told.compiles
    assert (seen.origin, seen.compile_ms, seen.error, seen.limit_ms) == (desk.a.origin, 812.5, "no such rule", 500.0)


@pytest.mark.parametrize("limit", ["hard", "soft", "compile", "asked"])
def test_an_offence_says_what_the_engines_watchdog_said(limit: str) -> None:
    desk = Desk()
    desk.attribution.offence(Offence(5, "b", limit, "stop", 2e6, 1e6, True, "step_budget_exceeded: …"))
    (seen,) = desk.told.offences
    assert (seen.origin, seen.limit, seen.kind) == (desk.b.origin, Limit(limit), "stop")
    assert (seen.own_us, seen.limit_us, seen.aborted, seen.reason) == (2e6, 1e6, True, "step_budget_exceeded: …")
