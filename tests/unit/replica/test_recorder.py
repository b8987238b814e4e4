"""The step thread's side: what a step's record says."""

from collections.abc import Iterator

import pytest

from replica.recorder.judge import Limits, Verdict
from replica.recorder.recorder import StepRecorder
from replica.recorder.records import (
    KIND_INDEX,
    CompileRecord,
    HookKind,
    HookTime,
    Limit,
    Note,
    Offence,
    StepRecord,
    decode,
    encode,
)
from replica.recorder.ring import RingReader, RingWriter

FILL, ACCEPT, OTHER = KIND_INDEX[HookKind.grammar_fill], KIND_INDEX[HookKind.grammar_accept], HookKind.other


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Bench:
    """A recorder on a clock of its own, and a reader of its ring."""

    def __init__(self, limits: Limits) -> None:
        self.clock, self.cpu = Clock(), Clock()
        self.ring = RingWriter(1 << 20)
        self.recorder = StepRecorder(self.ring, limits, clock=self.clock, cpu_clock=self.cpu)
        self.verdicts: list[Verdict] = []
        self.recorder.on_verdict = self.verdicts.append
        self.reader = RingReader(self.ring.fd)

    def passes(self, us: float) -> None:
        self.clock.now_s += us / 1e6
        self.cpu.now_s += us / 1e6

    def step(self, own_us: dict[str, float], *, shared_us: float = 0.0, forward_us: float = 1000.0) -> None:
        recorder = self.recorder
        recorder.step_begins()
        recorder.batch("decode", len(own_us), 0)
        self.passes(forward_us)
        recorder.forward(forward_us, forward_us)
        first = len(recorder.hooks)
        for rid, us in own_us.items():
            self.passes(us)
            recorder.hooks.append((rid, FILL, us))
        self.passes(shared_us)
        recorder.rest_of_section(sum(own_us.values()) + shared_us, first)

    def records(self) -> list[object]:
        return [decode(seq, payload) for seq, payload in self.reader.read().records]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(Limits(hard_us=10_000.0))
    yield bench
    bench.ring.close()


def test_a_step_says_what_the_model_took_and_what_the_hooks_took(bench: Bench) -> None:
    bench.step({"a": 50.0, "b": 30.0}, shared_us=20.0)
    bench.recorder.step_begins()
    (step,) = bench.records()
    assert isinstance(step, StepRecord)
    assert (step.mode, step.sequences, step.prompt_tokens, step.after_idle) == ("decode", 2, 0, True)
    assert step.forward_us == 1000.0
    assert step.hook_us == 100.0
    assert step.step_us == pytest.approx(1100.0)
    assert step.cpu_us == pytest.approx(100.0)
    assert step.hooks == (
        HookTime("a", HookKind.grammar_fill, 50.0),
        HookTime("b", HookKind.grammar_fill, 30.0),
        HookTime(None, OTHER, 20.0),
    )
    assert step.by_kind() == {HookKind.grammar_fill: 80.0, OTHER: 20.0}
    assert step.by_request() == {"a": {HookKind.grammar_fill: 50.0}, "b": {HookKind.grammar_fill: 30.0}}
    assert step.shared_us() == 20.0


def test_iterations_without_work_leave_no_record(bench: Bench) -> None:
    for _ in range(10):
        bench.recorder.step_begins()
    assert bench.records() == []


def test_a_step_after_a_step_is_not_after_idle(bench: Bench) -> None:
    bench.step({})
    bench.step({})
    bench.recorder.step_begins()
    bench.recorder.step_begins()
    bench.step({})
    bench.recorder.step_begins()
    assert [record.after_idle for record in bench.records() if isinstance(record, StepRecord)] == [True, False, True]


def test_a_step_says_which_kinds_run_for_the_first_times_in_the_life_of_the_engine(bench: Bench) -> None:
    for rid in ("a", "b", "c", "d"):
        bench.step({rid: 50.0})
    bench.recorder.step_begins()
    steps = [record for record in bench.records() if isinstance(record, StepRecord)]
    assert [step.cold for step in steps] == [(HookKind.grammar_fill,), (HookKind.grammar_fill,), (), ()]
    assert [step.judged() for step in steps[1:3]] == [{}, {"c": {HookKind.grammar_fill: 50.0}}]


def test_hooks_never_explain_more_than_the_section_took(bench: Bench) -> None:
    recorder = bench.recorder
    recorder.step_begins()
    recorder.hooks.append(("a", FILL, 30.0))
    recorder.rest_of_section(29.0, 0)
    recorder.step_begins()
    (step,) = bench.records()
    assert isinstance(step, StepRecord)
    assert step.hooks == (HookTime("a", HookKind.grammar_fill, 30.0),)


def test_an_offender_is_recorded_after_its_step_and_handed_on(bench: Bench) -> None:
    for _ in range(3):
        bench.step({"plain": 5.0, "heavy": 20.0})
    bench.step({"plain": 5.0, "heavy": 25_000.0})
    assert bench.recorder.caught(("File a, line 1, in fill",))
    assert not bench.recorder.caught(("File b, line 2, in fill",))
    bench.recorder.step_begins()
    offence = bench.records()[-1]
    assert isinstance(offence, Offence)
    assert (offence.rid, offence.limit, offence.kind, offence.us) == (
        "heavy",
        Limit.hard,
        HookKind.grammar_fill,
        25_000,
    )
    assert offence.stack == ("File a, line 1, in fill",)
    assert [verdict.rid for verdict in bench.verdicts] == ["heavy"]


def test_the_hook_that_runs_now_counts_before_it_ends(bench: Bench) -> None:
    recorder = bench.recorder
    recorder.step_begins()
    recorder.hooks.append(("a", FILL, 30.0))
    recorder.current = ("b", ACCEPT, bench.clock())
    bench.passes(70.0)
    assert recorder.hooks_so_far_us() == pytest.approx(100.0)


def test_a_jump_of_the_wall_clock_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    test_a_step_says_what_the_model_took_and_what_the_hooks_took(bench)


def test_without_a_ring_steps_are_still_judged() -> None:
    verdicts: list[Verdict] = []
    recorder = StepRecorder(None, Limits(hard_us=100.0))
    recorder.on_verdict = verdicts.append
    for _ in range(4):
        recorder.step_begins()
        recorder.batch("decode", 1, 0)
        deadline = recorder._cpu_clock() + 0.001
        while recorder._cpu_clock() < deadline:
            pass
        recorder.hooks.append(("a", FILL, 900.0))
        recorder.section(900.0)
    recorder.step_begins()
    recorder.note("nowhere to go")
    recorder.compiled("a", "json", 1.0, None)
    assert {verdict.rid for verdict in verdicts} == {"a"}


@pytest.mark.parametrize(
    "record",
    [
        Offence(7, 1.5, "a", Limit.hard, HookKind.stop, 5.0, 4.0, True, "why", ("frame",)),
        Offence(8, 1.5, "a", Limit.compile, None, 5.0, 4.0, False, "why"),
        CompileRecord(9, 2.5, "a", "json", 12.0, None),
        CompileRecord(9, 2.5, "a", "regex", 12.0, "bad"),
        Note(10, 3.5, "text"),
    ],
)
def test_every_record_survives_the_ring(record: Offence | CompileRecord | Note) -> None:
    assert decode(record.seq, encode(record)) == record


@pytest.mark.parametrize("fields", [(0, 1.0), (99,), (3, 1.0, "text", "more")])
def test_records_of_another_version_are_refused_by_name(fields: tuple[object, ...]) -> None:
    import marshal

    with pytest.raises(ValueError, match="version"):
        decode(1, marshal.dumps(fields))
