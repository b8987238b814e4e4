"""The engine loop: what is batched together does not change a reply, and no sequence can harm another."""

import threading
from typing import Any

import pytest

from replica.recorder.recorder import silent_recorder
from replica.simulator.compile import GrammarCompiler
from replica.simulator.grammar import Grammar, GrammarError, GrammarSpec
from replica.simulator.hooks import Hook
from replica.simulator.sequence import LogprobsWanted, Sequence
from replica.simulator.settings import Settings
from replica.simulator.vocabulary import Vocabulary

Rig = Any

PERSON = GrammarSpec("json", '{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}')
BOMB = GrammarSpec("ebnf", "root ::= ch+ ([ \\n] ch+)*\nch ::= [0-9a-zA-Z.,!?]")


def test_a_reply_is_the_same_alone_and_in_a_crowd(rig: Rig) -> None:
    def ask(rid: str, prompt: str) -> list[Sequence]:
        return [
            rig.sequence(prompt, rid=rid, max_new_tokens=40),
            rig.sequence(prompt, rid=rid, max_new_tokens=40, grammar=PERSON),
            rig.sequence(prompt, rid=rid, max_new_tokens=40, logprobs=LogprobsWanted(3)),
        ]

    alone = ask("alone", "one prompt")
    for sequence in alone:
        rig.submit(sequence)
        rig.finished(sequence)
    crowd = ask("crowd", "one prompt")
    others = [rig.sequence(f"other {i}", max_new_tokens=60, grammar=BOMB if i % 3 == 0 else None) for i in range(12)]
    rig.submit(*others, *crowd)
    rig.finished(*crowd, *others)
    assert [s.output for s in alone] == [s.output for s in crowd]
    assert max(r.sequences for r in rig.records) == 15
    logprobs = [[o.logprobs for o in rig.outputs_of(s)] for s in (alone[2], crowd[2])]
    assert logprobs[0] == logprobs[1]


def test_every_step_ships_once_with_all_sequences_in_it(rig: Rig) -> None:
    sequences = [rig.sequence(f"p{i}", rid=f"r{i}", max_new_tokens=10, ignore_eos=True) for i in range(8)]
    with rig.engine._wake:  # all are there before the engine wakes
        rig.engine._inbox.extend(sequences)
        rig.engine._wake.notify()
    rig.finished(*sequences)
    assert [len(step) for step in rig.steps] == [8] * 10


@pytest.mark.parametrize(
    ("params", "kind", "matched", "tokens"),
    [
        ({"max_new_tokens": 5, "ignore_eos": True}, "length", None, 5),
        ({"max_new_tokens": 400}, "stop", "eos", None),
        ({"max_new_tokens": 100, "stop": (" ",)}, "stop", " ", None),
        ({"max_new_tokens": 200, "stop_regex": (r"[,.;]",)}, "stop", r"[,.;]", None),
        ({"max_new_tokens": 100, "grammar": PERSON}, "stop", "eos", None),
        ({"max_new_tokens": 100, "grammar": PERSON, "ignore_eos": True}, "stop", "eos", None),
        ({"max_new_tokens": 3, "grammar": PERSON}, "length", None, 3),
    ],
)
def test_a_sequence_ends_for_its_reason(
    rig: Rig, vocabulary: Vocabulary, params: dict[str, Any], kind: str, matched: Any, tokens: int | None
) -> None:
    sequence = rig.sequence(**params)
    rig.submit(sequence)
    rig.finished(sequence)
    finish = rig.finish_of(sequence)
    assert (finish.type, finish.matched) == (kind, vocabulary.eos if matched == "eos" else matched)
    assert tokens is None or len(sequence.output) == tokens


def test_a_stop_token_ends_a_sequence(rig: Rig) -> None:
    probe = rig.sequence(max_new_tokens=5)
    rig.submit(probe)
    rig.finished(probe)
    third = probe.output[2]
    sequence = rig.sequence(max_new_tokens=5, stop_token_ids=frozenset({third}))
    rig.submit(sequence)
    rig.finished(sequence)
    assert rig.finish_of(sequence).matched == third
    assert sequence.output == probe.output[:3]


class BrokenGrammar:
    """Fails where a grammar engine can: at its third mask or its third token."""

    def __init__(self, inner: Grammar, method: str, error: BaseException) -> None:
        self._inner, self._method, self._error, self._left = inner, method, error, 3

    def copy(self) -> Grammar:
        return BrokenGrammar(self._inner.copy(), self._method, self._error)

    def _count(self, method: str) -> None:
        if method == self._method:
            self._left -= 1
            if self._left == 0:
                raise self._error

    def fill(self, mask: Any) -> None:
        self._count("fill")
        self._inner.fill(mask)

    def accept(self, token: int) -> bool:
        self._count("accept")
        return self._inner.accept(token)


@pytest.mark.parametrize("method", ["fill", "accept"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GrammarError("Too many items"), "Grammar accept_token failed: Too many items"),
        (RuntimeError("boom"), "RuntimeError: boom"),
        (BaseException("panic"), "BaseException: panic"),
    ],
)
def test_an_engine_error_in_mid_stream_ends_that_sequence_and_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException, message: str
) -> None:
    compile_ = rig.backend.compile
    monkeypatch.setattr(rig.backend, "compile", lambda spec: BrokenGrammar(compile_(spec), method, error))
    broken = rig.sequence(rid="broken", max_new_tokens=50, grammar=BOMB, ignore_eos=True)
    neighbours = [rig.sequence(f"n{i}", max_new_tokens=50, ignore_eos=True) for i in range(3)]
    rig.submit(*neighbours, broken)
    rig.finished(broken, *neighbours)
    finish = rig.finish_of(broken)
    assert (finish.type, finish.status, finish.message) == ("abort", 500, message)
    assert len(broken.output) == 2
    assert all(len(n.output) == 50 for n in neighbours)
    assert rig.engine.alive


def test_a_grammar_that_does_not_compile_is_refused_at_once_and_from_the_cache(rig: Rig) -> None:
    for _ in range(2):
        sequence = rig.sequence(grammar=GrammarSpec("ebnf", "root ::= ("))
        rig.submit(sequence)
        rig.finished(sequence)
        finish = rig.finish_of(sequence)
        assert (finish.type, finish.status) == ("abort", 400)
        assert finish.message.startswith("Failed to compile ebnf grammar: ")


@pytest.mark.parametrize("error", [RuntimeError("boom"), BaseException("panic")])
def test_a_compiler_that_breaks_fails_its_request_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(_: GrammarSpec) -> Grammar:
        raise error

    monkeypatch.setattr(rig.backend, "compile", broken)
    sequence, neighbour = rig.sequence(grammar=PERSON), rig.sequence("neighbour", max_new_tokens=30)
    rig.submit(neighbour, sequence)
    rig.finished(sequence, neighbour)
    assert rig.finish_of(sequence).message == f"Failed to compile json grammar: Grammar compilation failed: {error}"
    assert rig.finish_of(neighbour).type == "length"


def test_aborts_take_all_that_begin_with_the_id_wherever_they_are(
    vocabulary: Vocabulary, backend: Any, rig: Rig
) -> None:
    sequences = {rid: rig.sequence(rid, rid=rid, max_new_tokens=900, ignore_eos=True) for rid in ("ab", "abc", "b")}
    rig.submit(*sequences.values())
    rig.wait(lambda: all(rig.outputs_of(s) for s in sequences.values()))
    rig.engine.abort("ab")
    rig.finished(sequences["ab"], sequences["abc"])
    assert rig.finish_of(sequences["ab"]).as_json()["type"] == "abort"
    assert rig.finish_of(sequences["b"]) is None
    rig.engine.abort("")
    rig.engine.cancel(sequences["b"])
    rig.finished(sequences["b"])


@pytest.mark.parametrize("rig", [{"max_running_requests": 1, "max_queued_requests": 2}], indirect=True)
def test_beyond_the_queue_requests_are_refused_and_the_queue_can_be_aborted(rig: Rig) -> None:
    running = rig.sequence("first", rid="running", max_new_tokens=900, ignore_eos=True)
    rig.submit(running)
    rig.wait(lambda: bool(rig.outputs_of(running)))
    queued = [rig.sequence(f"q{i}", rid=f"queued-{i}", max_new_tokens=5) for i in range(2)]
    refused = rig.sequence("late", rid="late", max_new_tokens=5)
    rig.submit(*queued, refused)
    rig.finished(refused)
    assert (rig.finish_of(refused).status, rig.finish_of(refused).message) == (503, "The request queue is full.")
    rig.engine.abort("queued-0")
    rig.finished(queued[0])
    assert max(r.sequences for r in rig.records) == 1
    rig.engine.cancel(running)
    rig.finished(queued[1])
    assert len(queued[1].output) == 5


@pytest.mark.parametrize("rig", [{"chunked_prefill_size": 4}], indirect=True)
def test_long_prompts_are_prefilled_in_chunks_beside_running_sequences(rig: Rig) -> None:
    long = rig.sequence("one two three four five six seven eight nine ten", max_new_tokens=2)
    rig.submit(long)
    rig.finished(long)
    assert [r.prompt_tokens for r in rig.records][:3] == [4, 4, 2]
    assert [r.tokens for r in rig.records][:3] == [0, 0, 1]


def test_a_step_record_names_each_hook_of_each_request(rig: Rig) -> None:
    plain = rig.sequence("plain", rid="plain", max_new_tokens=6, ignore_eos=True)
    constrained = rig.sequence("json", rid="json", max_new_tokens=6, grammar=BOMB, ignore_eos=True)
    scored = rig.sequence(
        "a scored prompt", rid="scored", max_new_tokens=6, ignore_eos=True, logprobs=LogprobsWanted(5, prompt_start=0)
    )
    stopped = rig.sequence("stop", rid="stop", max_new_tokens=6, ignore_eos=True, stop=("never seen",))
    rig.submit(plain, constrained, scored, stopped)
    rig.finished(plain, constrained, scored, stopped)
    seen = {(h.rid, h.hook) for r in rig.records for h in r.hooks}
    assert seen == {
        ("json", Hook.grammar_fill),
        ("json", Hook.grammar_accept),
        ("scored", Hook.logprobs),
        ("scored", Hook.prompt_logprobs),
        ("stop", Hook.stop),
    }
    for record in rig.records:
        assert sum(h.us for h in record.hooks) <= record.hooks_us
        assert record.forward_us >= 200
    load = rig.engine.load
    assert load.hook_s[Hook.grammar_fill] > load.hook_s[Hook.grammar_accept] > 0


def test_prompt_logprobs_cover_the_prompt_from_their_start(rig: Rig) -> None:
    sequence = rig.sequence("a b c d e", max_new_tokens=1, logprobs=LogprobsWanted(2, prompt_start=1))
    rig.submit(sequence)
    rig.finished(sequence)
    scored = rig.outputs_of(sequence)[0].prompt_logprobs
    assert [s.chosen.token for s in scored] == sequence.prompt[1:]
    assert all(len(s.top) == 2 and s.chosen.logprob < 0 for s in scored)


class SlowBackend:
    """Compiles when it is let."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.release = threading.Event()
        self.compiled = 0

    def compile(self, spec: GrammarSpec) -> Grammar:
        self.release.wait(60)
        self.compiled += 1
        grammar: Grammar = self._inner.compile(spec)
        return grammar


@pytest.fixture
def slow(backend: Any) -> Any:
    made = SlowBackend(backend)
    yield made
    made.release.set()


def compiler(slow: SlowBackend, **changes: Any) -> GrammarCompiler:
    return GrammarCompiler(slow, Settings(**{"grammar_poll_s": 0.002, **changes}), silent_recorder())


def test_a_poll_waits_no_longer_than_its_interval_and_yields_what_is_ready(slow: SlowBackend, rig: Rig) -> None:
    grammars = compiler(slow)
    sequence = rig.sequence(grammar=PERSON)
    assert grammars.request(sequence, PERSON) is None
    assert (grammars.poll().sequences, len(grammars)) == ([], 1)
    slow.release.set()
    while not (ready := grammars.poll()).sequences:
        pass
    assert ready.sequences == [sequence]
    assert sequence.grammar is not None
    again = grammars.request(rig.sequence(grammar=PERSON), PERSON)
    assert again is not None
    assert (len(again.sequences), slow.compiled) == (1, 1)
    grammars.close()


def test_a_grammar_that_takes_too_many_polls_fails_and_stays_failed(slow: SlowBackend, rig: Rig) -> None:
    grammars = compiler(slow, grammar_max_polls=3)
    sequence = rig.sequence(grammar=PERSON)
    grammars.request(sequence, PERSON)
    polls = [grammars.poll() for _ in range(3)]
    assert [len(p.failed) for p in polls] == [0, 0, 1]
    assert "timed out" in polls[-1].failed[0][1]
    again = grammars.request(rig.sequence(grammar=PERSON), PERSON)
    assert again is not None
    assert "timed out" in again.failed[0][1]
    grammars.close()


def test_the_cache_is_bounded_and_forgets_the_least_recently_used(slow: SlowBackend, rig: Rig) -> None:
    slow.release.set()
    grammars = compiler(slow, grammar_cache=2)
    specs = [GrammarSpec("regex", pattern) for pattern in ("a", "b", "c")]
    for spec in [*specs[:2], specs[0], specs[2], specs[0], specs[1]]:
        ready = grammars.request(rig.sequence(grammar=spec), spec)
        while ready is None or not ready.sequences:
            ready = grammars.poll()
    assert slow.compiled == 4
    grammars.close()


def test_while_a_grammar_compiles_every_step_waits_for_the_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, slow: SlowBackend
) -> None:
    monkeypatch.setattr(rig.engine._compiler, "_backend", slow)
    plain = rig.sequence("plain", max_new_tokens=900, ignore_eos=True)
    waiting = rig.sequence("json", rid="waiting", max_new_tokens=20, grammar=PERSON)
    rig.submit(plain, waiting)
    rig.wait(lambda: len(rig.outputs_of(plain)) > 5)
    assert all(r.poll_us >= 5000 for r in rig.records[1:5])
    assert rig.engine.load.grammar_queue == 1
    rig.engine.abort("waiting")
    rig.finished(waiting)
    polled = len(rig.records)
    rig.wait(lambda: len(rig.records) > polled + 5)
    assert rig.records[-1].poll_us == 0
