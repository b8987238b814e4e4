"""The parts of the engine plugins that need no engine: shares, timers on objects, exact aborts, missing targets."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from replica.recorder.judge import Limits, Verdict
from replica.recorder.recorder import StepRecorder, silent_recorder
from replica.recorder.records import KIND_INDEX, HookKind, Limit
from replica.recorder.ring import RingReader, RingWriter
from replica.recorder.timing import shadow
from replica.sglang.endings import Endings
from replica.sglang.grammars import GrammarTimers
from replica.sglang.plugin import Target as SglangTarget
from replica.sglang.plugin import find_problem
from replica.sglang.polling import GrammarPolling
from replica.sglang.shares import output_shares, prompt_shares, token_shares
from replica.vllm.endings import engine_ids
from replica.vllm.plugin import Target as VllmTarget
from replica.vllm.plugin import wrap
from replica.vllm.timers import VllmTimers

FILL = KIND_INDEX[HookKind.grammar_fill]


def request(rid: str, top: int | None = None, *, sent: bool = True, prompt: int = 0) -> Any:
    logprob = SimpleNamespace(top_logprobs_num=top or 0, input_token_logprobs_val=[0.0] * prompt)
    return SimpleNamespace(rid=rid, return_logprob=top is not None, logprob=logprob, input_logprob_sent=sent)


def test_prompt_log_probabilities_are_paid_for_by_their_number() -> None:
    batch = SimpleNamespace(
        reqs=[request("plain"), request("a", 0), request("b", 9), request("late", 9)],
        extend_lens=[100, 100, 100, 50],
        extend_logprob_start_lens=[100, 0, 90, 50],
    )
    assert dict(prompt_shares(batch)) == {"a": 0.5, "b": 0.5}


def test_log_probabilities_of_a_token_are_paid_for_by_those_who_asked() -> None:
    assert dict(token_shares(SimpleNamespace(reqs=[request("plain"), request("a", 0), request("b", 2)]))) == {
        "a": 0.25,
        "b": 0.75,
    }


def test_output_is_everybodys_and_its_values_are_their_requests() -> None:
    assert output_shares([request("plain")]) == []
    shares = dict(output_shares([request("plain"), request("a", 19), request("b", 0, sent=False, prompt=39)]))
    assert shares == {"a": 20 / 120, "b": 40 / 120, None: 60 / 120}


class Grammar:
    def __init__(self) -> None:
        self.filled: list[tuple[Any, int]] = []

    def fill_vocab_mask(self, vocab_mask: Any, idx: int) -> None:
        self.filled.append((vocab_mask, idx))

    def accept_token(self, token: int) -> None:
        if token < 0:
            raise ValueError(token)


class BatchedGrammar(Grammar):
    @staticmethod
    def fill_vocab_mask_batched(entries: list[Any], vocab_mask: Any) -> None:
        for entry in entries:
            Grammar.fill_vocab_mask(entry.grammar, vocab_mask, entry.row)


def test_a_timed_grammar_works_as_before_and_dies_as_before() -> None:
    recorder = silent_recorder()
    grammar, other = Grammar(), Grammar()
    GrammarTimers(recorder).own(grammar, "r1")
    grammar.fill_vocab_mask("mask", 3)
    other.fill_vocab_mask("mask", 4)
    with pytest.raises(ValueError, match="-1"):
        grammar.accept_token(-1)
    assert grammar.filled == [("mask", 3)]
    assert [(rid, kind) for rid, kind, _ in recorder.hooks] == [
        ("r1", FILL),
        ("r1", KIND_INDEX[HookKind.grammar_accept]),
    ]
    assert recorder.current is None
    gone = weakref.ref(grammar)
    gc.disable()
    try:
        del grammar
        assert gone() is None
    finally:
        gc.enable()


def test_masks_filled_in_one_call_are_shared_and_when_dear_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("replica.sglang.grammars._PROBE_OVER_US", -1.0)
    monkeypatch.setattr("replica.sglang.grammars._PROBE_EVERY", 2)
    recorder = silent_recorder()
    timers = GrammarTimers(recorder)
    grammars = [BatchedGrammar(), BatchedGrammar()]
    for number, grammar in enumerate(grammars):
        timers.own(grammar, f"r{number}")
    entries = [SimpleNamespace(grammar=grammar, row=row) for row, grammar in enumerate(grammars)]
    equal = []
    for _ in range(6):
        recorder.hooks.clear()
        grammars[0].fill_vocab_mask_batched(entries, "mask")
        assert [rid for rid, _, _ in recorder.hooks] == ["r0", "r1"]
        equal.append(recorder.hooks[0][2] == recorder.hooks[1][2])
    assert equal[:2] == [True, True]
    assert False in equal[2:4]
    assert [row for _, row in grammars[1].filled] == [1] * 6


def test_only_the_shadowed_object_is_timed() -> None:
    recorder = silent_recorder()
    one, other = Grammar(), Grammar()
    shadow(recorder, one, "accept_token", "r", FILL)
    other.accept_token(1)
    assert recorder.hooks == []
    one.accept_token(1)
    assert len(recorder.hooks) == 1


def test_an_abort_of_ours_means_one_request_and_not_those_whose_id_begins_alike() -> None:
    reqs = [SimpleNamespace(rid=rid) for rid in ("r-1", "r-10", "r-1_0", "other")]
    scheduler = SimpleNamespace(
        waiting_queue=reqs[:2],
        grammar_manager=SimpleNamespace(grammar_queue=[]),
        collect_inflight_reqs=lambda: reqs[2:],
        chunked_req=None,
    )
    hit: list[str] = []

    def original(_: Any, recv_req: Any) -> None:
        hit.extend(req.rid for req in reqs if req.rid.startswith(recv_req.rid))

    ours = SimpleNamespace(abort_all=False, rid="r-1", abort_message="step_budget_exceeded: too much")
    Endings().abort_request(original, scheduler, ours)
    assert hit == ["r-1"]
    assert [req.rid for req in reqs] == ["r-1", "r-10", "r-1_0", "other"]
    hit.clear()
    Endings().abort_request(original, scheduler, SimpleNamespace(abort_all=False, rid="r-1", abort_message=None))
    assert hit == ["r-1", "r-10", "r-1_0"]


def test_a_verdict_that_only_records_aborts_nobody() -> None:
    endings = Endings()
    endings.add(Verdict("a", Limit.soft, HookKind.stop, 5.0, 4.0, abort=False))
    assert endings.poll_timeout_aborts(lambda _: [], None) == []


class Future:
    def __init__(self, *, done: bool) -> None:
        self._done = done

    def done(self) -> bool:
        return self._done


def test_the_poll_shows_the_engine_only_what_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.sglang.polling.Future", Future)
    recorder = silent_recorder()
    polling = GrammarPolling(recorder, GrammarTimers(recorder), sleepless=True)
    waiting, ready = (
        SimpleNamespace(
            rid=rid, grammar=Future(done=done), grammar_key=("json", ""), to_finish=None, finished=lambda: False
        )
        for rid, done in (("waiting", False), ("ready", True))
    )
    running = SimpleNamespace(is_empty=lambda: False)
    manager = SimpleNamespace(
        grammar_queue=[waiting, ready],
        grammar_sync_size=1,
        pp_size=1,
        SGLANG_GRAMMAR_POLL_INTERVAL=0.005,
        scheduler=SimpleNamespace(running_batch=running, waiting_queue=[], chunked_req=None),
    )
    shown: list[list[str]] = []

    def original(manager: Any) -> list[Any]:
        assert manager.SGLANG_GRAMMAR_POLL_INTERVAL <= 1e-4
        shown.append([req.rid for req in manager.grammar_queue])
        done = [req for req in manager.grammar_queue if req.grammar.done()]
        manager.grammar_queue = [req for req in manager.grammar_queue if req not in done]
        for req in done:
            req.grammar = Grammar()
        return done

    assert polling.ready(original, manager) == [ready]
    assert polling.ready(original, manager) == []
    assert shown == [["ready"]]
    assert manager.grammar_queue == [waiting]
    assert manager.SGLANG_GRAMMAR_POLL_INTERVAL == 0.005
    assert [rid for rid, _, _ in recorder.hooks] == [None, None]


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("json.dumps", ("obj",), None),
        ("json.dumps", ("obj", "gone"), "json.dumps has lost its parameter gone: the timer for t is off"),
        ("json.gone", (), "this SGLang has no json.gone: the timer for t is off"),
        ("no.such.module.f", (), "this SGLang has no no.such.module.f: the timer for t is off"),
    ],
)
def test_a_target_that_is_not_as_expected_is_named(name: str, parameters: tuple[str, ...], problem: str | None) -> None:
    assert find_problem(SglangTarget(name, parameters, "t", print)) == problem


class Wrapped:
    def double(self, number: int) -> int:
        return 2 * number


def test_functions_of_vllm_are_wrapped_once_and_missing_ones_named() -> None:
    calls: list[int] = []

    def hook(original: Any, owner: Wrapped, number: int) -> Any:
        calls.append(number)
        return original(owner, number)

    name = f"{__name__}.Wrapped.double"
    assert wrap(VllmTarget(name, "t", hook)) is None
    assert wrap(VllmTarget(name, "t", hook)) is None
    assert Wrapped().double(4) == 8
    assert calls == [4]
    assert wrap(VllmTarget(f"{__name__}.Wrapped.gone", "t", hook)) == (
        f"this vLLM has no {__name__}.Wrapped.gone: the timer for t is off"
    )


@pytest.mark.parametrize(
    ("rid", "ids"),
    [("chatcmpl-a", ["chatcmpl-a-01234567"]), ("chatcmpl-a-01234567", ["chatcmpl-a-01234567"]), ("chatcmpl", [])],
)
def test_ids_that_vllm_lengthens_are_found(rid: str, ids: list[str]) -> None:
    assert engine_ids({"chatcmpl-a-01234567": 1, "chatcmpl-ab-01234567": 2}, rid) == ids


@pytest.mark.parametrize(("scheduled", "records"), [({}, 0), ({"a": 1}, 1)])
def test_iterations_of_vllm_in_which_nothing_is_scheduled_leave_no_record(
    scheduled: dict[str, int], records: int
) -> None:
    ring = RingWriter(1 << 16)
    try:
        recorder = StepRecorder(ring, Limits())
        timers = VllmTimers(recorder, carry=False)
        output = SimpleNamespace(num_scheduled_tokens=scheduled)
        for _ in range(2):
            recorder.step_begins()
            timers.section(lambda *_: None, None, output)
            timers.update(lambda *_: None, None, output, object())
        assert len(RingReader(ring.fd).read().records) == records
    finally:
        ring.close()
