"""What is measured, kept, compared and shown."""

import math
import random
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from gateway.control.config import parse_config
from loadtest.client.outcome import Outcome
from loadtest.client.stepfeed import Step
from loadtest.client.validation import reply_text, validate
from loadtest.headline.fronts import MIXED, OURS, configuration
from loadtest.headline.outcome import Repetition, conclude
from loadtest.headline.verdict import Line, agreement, goals, table
from loadtest.report.comparison import compare
from loadtest.report.page import page
from loadtest.report.summary import markdown
from loadtest.results.figures import Figures, figures
from loadtest.results.histogram import Histogram
from loadtest.results.ratios import goodput_per_s, ratios, throughput
from loadtest.results.run import ResultsError, Run, new_run, read
from loadtest.results.slices import Slice, Steps, delivered_of, timeline_of
from loadtest.run import order, resumed
from loadtest.traffic.plan import Planned
from loadtest.traffic.scenario import Scenario, Slo

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def outcome(*, arrivals: list[float] = (), error: str = "", measured: bool = True, **more: object) -> Outcome:  # type: ignore[assignment]
    planned = Planned(0.0, "chat", "/", b"{}", more.pop("schema", None), measured)  # type: ignore[arg-type]
    ended = (arrivals[-1] if arrivals else 10.0) + 0.01
    return Outcome(planned, due=10.0, sent=10.001, ended=ended, arrivals=list(arrivals), error=error, **more)  # type: ignore[arg-type]


def stream(ttft_s: float, gaps_s: list[float]) -> list[float]:
    moments = [10.0 + ttft_s]
    for gap_s in gaps_s:
        moments.append(moments[-1] + gap_s)
    return moments


def scenario(rounds: int = 2) -> Scenario:
    classes = {"chat": {"kind": "chat"}, "bomb": {"kind": "ebnf_bomb", "hostile": True}}
    return Scenario.model_validate({"name": "s", "rate_per_s": 4, "rounds": rounds, "classes": classes})


def run_of(itl_ms: dict[tuple[str, str, int], float]) -> Run:
    """A run in which all times between tokens of a slice's chat are one."""
    run = new_run(scenario())
    for (target, phase, turn), gap_ms in itl_ms.items():
        chat = figures([outcome(arrivals=stream(0.1, [gap_ms / 1e3] * 20))] * 4, Slo(itl_p99_ms=50), 10.0)
        classes = {"chat": chat, "bomb": Figures(seconds=10.0, asked=1, answered=1, good=1)}
        made = Slice(target, phase, turn, 1e9, classes)
        made.timeline = {"chat": [(3, gap_ms, gap_ms), (0, 0.0, 0.0)]}
        made.delivered_per_s = 1000.0 / gap_ms
        made.steps.add(Step(0, 1e9, 12_000, 9_000, 3_000, 4, {"chat": 50.0, "": 7.0}))
        made.trips = [(1.5, "s1-x")]
        made.costs = [{"signature": "s1-x", "steps": 9.0, "observed_us": 90.0, "predicted_us": 100.0}]
        run.slices.append(made)
    return run


TWO_ROUNDS = {
    ("a", "calm", 0): 10.0,
    ("a", "hostile", 0): 30.0,
    ("a", "calm", 1): 20.0,
    ("a", "hostile", 1): 100.0,
    ("b", "calm", 0): 10.0,
    ("b", "hostile", 0): 10.0,
}


def test_a_quantile_is_within_two_per_mille_of_the_true_one() -> None:
    chance = random.Random(1)
    values = sorted(chance.lognormvariate(2, 2) for _ in range(20_000))
    histogram = Histogram(values)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert histogram.quantile(share) == pytest.approx(values[math.ceil(share * len(values)) - 1], rel=0.002)
    assert histogram.quantile(1.0) == values[-1]
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_histograms_add_up_and_are_read_as_they_were_written() -> None:
    both, first, second = Histogram([1, 2, 3, 400]), Histogram([1, 2]), Histogram([3, 400])
    first.merge(second)
    assert first.document() == both.document() == Histogram.read(both.document()).document()
    assert math.isnan(Histogram().quantile(0.5))
    assert both.cdf()[1][-1] == 1.0


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (Slo(), 1),
        (Slo(ttft_ms=200, itl_p99_ms=25, e2e_s=1), 1),
        (Slo(ttft_ms=99), 0),
        (Slo(itl_p99_ms=19), 0),
        (Slo(e2e_s=0.2), 0),
    ],
)
def test_good_is_what_keeps_every_limit(slo: Slo, good: int) -> None:
    made = figures([outcome(arrivals=stream(0.1, [0.01] * 20 + [0.02]))], slo, 10.0)
    assert (made.answered, made.good) == (1, good)


def test_times_count_from_when_a_request_was_due_and_not_from_when_it_was_sent() -> None:
    late = outcome(arrivals=stream(0.5, [0.01]))
    late.sent = 10.45
    made = figures([late], Slo(), 10.0)
    assert made.ttft_ms.largest == pytest.approx(500)
    assert made.late_ms.largest == pytest.approx(450)


def test_requests_end_in_one_of_three_ways() -> None:
    made = figures(
        [
            outcome(arrivals=stream(0.1, [0.01])),
            outcome(error="status 503"),
            outcome(arrivals=stream(0.1, []), left=True),
            outcome(measured=False),
        ],
        Slo(),
        10.0,
    )
    assert (made.asked, made.answered, made.failed, made.left) == (3, 1, 1, 1)
    assert made.errors == {"status 503": 1}


def test_a_structured_reply_is_good_only_if_it_is_valid() -> None:
    def replied(text: str, reason: str) -> Outcome:
        body = orjson.dumps({"choices": [{"message": {"content": text}, "finish_reason": reason}]})
        return outcome(arrivals=stream(0.1, []), schema=SCHEMA, reply=bytearray(body))

    outcomes = [replied('{"n": 1}', "stop"), replied('{"n": "x"}', "stop"), replied('{"n"', "stop")]
    outcomes.append(replied('{"n"', "length"))
    validate(outcomes)
    made = figures(outcomes, Slo(), 10.0)
    assert (made.validated, made.invalid, made.truncated, made.good) == (3, 2, 1, 2)
    assert all(each.reply is None for each in outcomes)


@pytest.mark.parametrize(
    ("reply", "text", "reason"),
    [
        (b'{"choices":[{"message":{"content":"ab"},"finish_reason":"stop"}]}', "ab", "stop"),
        (
            b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
            b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
            b'data: {"choices":[{"index":1,"delta":{"content":"X"}}]}\n\n'
            b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}]}\n\n'
            b'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n',
            "ab",
            "length",
        ),
    ],
)
def test_the_text_of_a_reply_is_read_streamed_or_not(reply: bytes, text: str, reason: str) -> None:
    assert reply_text(reply) == (text, reason)


def test_a_results_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_of(TWO_ROUNDS)
    run.save(tmp_path / "r.json")
    again = read(tmp_path / "r.json")
    assert [each.document() for each in again.slices] == [each.document() for each in run.slices]
    assert again.machine == run.machine
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_run_goes_on_with_the_same_scenario_only(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert resumed(scenario(), path).slices == []
    run_of(TWO_ROUNDS).save(path)
    assert len(resumed(scenario(), path).slices) == len(TWO_ROUNDS)
    with pytest.raises(ResultsError, match="another scenario"):
        resumed(scenario(rounds=3), path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 0}'])
def test_a_file_that_holds_no_results_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(ResultsError, match=r"r\.json"):
        read(path)


def test_targets_and_phases_take_turns() -> None:
    assert list(order(scenario(), ["a", "b"])) == [
        ("a", "calm", 0),
        ("a", "hostile", 0),
        ("b", "calm", 0),
        ("b", "hostile", 0),
        ("b", "hostile", 1),
        ("b", "calm", 1),
        ("a", "hostile", 1),
        ("a", "calm", 1),
    ]


def test_a_ratio_is_that_of_what_all_whole_rounds_came_to_together() -> None:
    run = run_of(TWO_ROUNDS | {("a", "hostile", 2): 900.0})
    assert ratios(run, "a", "chat").itl_p99 == pytest.approx(100 / 20, rel=0.01)
    assert ratios(run, "a", "chat").goodput == pytest.approx(0.5)  # all of them in one round, none in the other
    assert ratios(run, "b", "chat").itl_p99 == pytest.approx(1)
    assert math.isnan(ratios(run, "c", "chat").itl_p99)
    assert goodput_per_s(run, "b", "hostile", ["chat", "bomb"]) == pytest.approx(0.5)


def test_throughput_is_compared_within_each_round() -> None:
    delivered = {("a", 0): 10.0, ("a", 1): 20.0, ("a", 2): 10.0, ("b", 0): 10.0, ("b", 1): 20.0, ("b", 2): 20.0}
    run = run_of({(target, "calm", turn): gap_ms for (target, turn), gap_ms in delivered.items()})
    assert throughput(run, "a", "b", "calm") == pytest.approx(1.0)
    assert throughput(run, "b", "a", "calm") == pytest.approx(1.0)
    assert run.delivered_per_s("a", "calm", 1) == pytest.approx(50)
    assert run.delivered_per_s("c", "calm") == 0.0
    assert math.isnan(throughput(run, "a", "c", "calm"))


def test_what_is_delivered_are_the_tokens_that_came_in_the_measured_time() -> None:
    both = outcome(arrivals=[9.0, 10.0, 11.0, 12.0], tokens=8)
    assert delivered_of([both, outcome(), outcome(arrivals=[13.0], tokens=1)], 10.0, 12.0) == pytest.approx(4 / 2)


def test_steps_add_up_by_class() -> None:
    steps, more = Steps(), Steps()
    steps.add(Step(0, 0.0, 10, 6, 4, 1, {"chat": 3.0}))
    more.add(Step(0, 0.0, 10, 6, 4, 1, {"chat": 5.0, "": 1.0}))
    steps.merge(more)
    assert (steps.count, steps.own_us["chat"].count, steps.own_us["other"].count) == (2, 2, 1)
    assert Steps.read(steps.document()).document() == steps.document()


def test_the_timeline_has_a_place_for_every_second() -> None:
    made = timeline_of([outcome(arrivals=[11.0, 11.1, 11.4, 13.0])], 10.0, 4)
    assert made == {"chat": [(0, 0.0, 0.0), (2, 100.0, 300.0), (0, 0.0, 0.0), (1, 1600.0, 1600.0)]}


def test_the_page_needs_nothing_else_and_shows_every_target() -> None:
    run = run_of(TWO_ROUNDS)
    html = page(run)
    assert html.count("<svg") == 4
    assert "<script" not in html
    assert " src=" not in html
    for target in ("a", "b"):
        assert f"<td>{target}</td>" in html
    assert "**" not in html
    assert "**5.00**" in markdown(run)


def test_a_comparison_marks_what_is_more_than_a_tenth_apart() -> None:
    text = compare(run_of(TWO_ROUNDS), run_of(TWO_ROUNDS | {("a", "calm", 0): 15.0, ("a", "calm", 1): 15.0}))
    (changed,) = [line for line in text.splitlines() if line.startswith("| a | calm | chat")]
    (same,) = [line for line in text.splitlines() if line.startswith("| b | calm | chat")]
    assert "**" in changed
    assert "**" not in same


def test_runs_without_anything_in_common_cannot_be_compared() -> None:
    with pytest.raises(ResultsError, match="in common"):
        compare(run_of({("a", "calm", 0): 1.0}), run_of({("b", "calm", 0): 1.0}))


MIXED_LINE = Line(MIXED, 3.0, 2.0, 60.0, 9.0, 1.0, 1.0)
GOOD_LINE = Line(OURS, 1.02, 1.05, 21.0, 10.0, 0.95, 0.99)


def test_all_goals_are_met_by_who_keeps_them() -> None:
    made = goals([MIXED_LINE, GOOD_LINE])
    assert [goal.met for goal in made] == [True] * 5
    assert len(goals([replace(each, throughput=math.nan) for each in (MIXED_LINE, GOOD_LINE)])) == 4


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"itl_p99": 1.06}, "p99 ITL"),
        ({"ttft_p99": 1.11}, "p99 TTFT"),
        ({"heavy_per_s": 0.89}, "heavy classes"),
        ({"goodput_per_s": 9.0}, "goodput of all"),
        ({"throughput": 0.979}, "saturated"),
    ],
)
def test_a_goal_that_is_missed_is_told(change: dict[str, float], missed: str) -> None:
    (goal,) = [goal for goal in goals([MIXED_LINE, replace(GOOD_LINE, **change)]) if not goal.met]  # type: ignore[arg-type]
    assert missed in str(goal)
    assert str(goal).startswith("MISSED")


def test_runs_agree_when_their_ratios_are_within_a_tenth() -> None:
    def at(itl_p99: float) -> list[Line]:
        return [Line(OURS, itl_p99, 1.0, 20.0, 10.0, 1.0)]

    assert all(goal.met for goal in agreement([at(1.0), at(1.09), at(1.05)]))
    assert [goal.met for goal in agreement([at(1.0), at(1.2)])] == [False, True]
    assert OURS in table(at(1.0))


def test_first_tokens_of_peers_are_told_but_promised_to_nobody() -> None:
    def at(front: str, ttft_p99: float) -> list[Line]:
        return [Line(front, 1.0, ttft_p99, 20.0, 10.0, 1.0)]

    ours = agreement([at(OURS, 1.0), at(OURS, 1.2)])
    others = agreement([at("smg", 1.0), at("smg", 1.2)])
    assert [(goal.promised, goal.met) for goal in ours] == [(True, True), (True, False)]
    assert [(goal.promised, goal.met) for goal in others] == [(True, True), (False, False)]
    assert str(others[1]).startswith("told    smg: p99 TTFT ratios 1.00, 1.20 are 20% apart")


@pytest.mark.parametrize(("hurt_ms", "said", "ended"), [(10.0, "13 of 13 goals", 0), (11.0, "11 of 13 goals", 1)])
def test_the_outcome_of_all_runs_is_judged_and_written_down(
    hurt_ms: float, said: str, ended: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = {(MIXED, "calm", 0): 10.0, (OURS, "calm", 0): 10.0}
    isolation = run_of(calm | {(MIXED, "hostile", 0): 60.0, (OURS, "hostile", 0): hurt_ms})
    repetitions = [Repetition(isolation, run_of(calm))] * 2
    assert conclude(repetitions, tmp_path, None, ["smg is missing"], forgive=False) == ended
    printed = capsys.readouterr().out
    assert said in printed
    assert "smg is missing" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"headline.md", "headline.html", "saturated.html"}


@pytest.mark.parametrize("count", [2, 4])
def test_steplane_keeps_the_last_replicas_for_what_is_heavy(count: int) -> None:
    text = configuration([f"http://127.0.0.1:{port}" for port in range(1, count + 1)], "llguidance")
    assert f"quarantine: {{replicas: [http://127.0.0.1:{count}]}}" in text
    assert not parse_config(text).warnings
