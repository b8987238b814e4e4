"""Which grammars are tried first, where they compile, what is refused and what is kept."""

import json
import os
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from replica.grammar import pool
from replica.grammar.cache import GrammarCache
from replica.grammar.pool import COMPILE_NICENESS, CompileTooLongError, NiceCompiler, compile_pool
from replica.grammar.price import UNKNOWN_MS, compile_price_ms
from replica.grammar.refusals import Refusals
from replica.grammar.trial import Trial, TrialSetup


def schema(**fields: Any) -> str:
    return json.dumps(fields)


NAMES = {f"{'abcdefghij'[number % 10] * 12}{number}": {"type": "string"} for number in range(40)}
NESTED_UNIONS: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "string"}},
    "additionalProperties": False,
}
for _ in range(11):
    NESTED_UNIONS = {"oneOf": [NESTED_UNIONS, {"type": "object", "properties": {"y": NESTED_UNIONS}}]}


@pytest.mark.parametrize(
    ("kind", "text", "at_least_ms", "below_ms"),
    [
        ("json", schema(type="string"), 0, 1),
        ("json", "$$ANY$$", 0, 1),
        ("json", "[" * 3000, 0, 1),
        ("json", schema(type="object", properties=NAMES, additionalProperties=False), 0, 10),
        ("json", schema(type="object", properties=NAMES, additionalProperties=True), 4_000, 20_000),
        ("json", schema(type="object", properties=NAMES, additionalProperties={"type": "string"}), 4_000, 20_000),
        ("json", schema(type="string", pattern="^[a-z]{1,20}$"), 10, 100),
        ("json", schema(type="string", pattern="^([a-z]{1,100} ){1,100}$"), 4_000, 1e6),
        ("json", schema(type="string", enum=["x" * 20] * 50_000), 4_000, 10_000),
        ("json", json.dumps(NESTED_UNIONS), 4_000, 1e12),
        ("json", json.dumps([[{}] * 300] * 300), UNKNOWN_MS, None),
        ("regex", "([a-z]{1,100} ){1,100}", 4_000, 1e6),
        ("regex", r"\([a-z]{3}\)", 1, 20),
        ("regex", "(" * 5000, 0, 1),
        ("ebnf", 'root ::= [a-z]{1,5} " "', 1, 20),
        ("ebnf", "x" * 100_000, UNKNOWN_MS, None),
    ],
)
def test_the_price_of_a_grammar_tells_seconds_from_milliseconds(
    kind: str, text: str, at_least_ms: float, below_ms: float | None
) -> None:
    price = compile_price_ms(kind, text)
    assert price >= at_least_ms
    if below_ms is not None:
        assert price < below_ms


class Compiler:
    """Says how it is scheduled while it compiles, once `go` is set."""

    def __init__(self) -> None:
        self.thread = 0
        self.go = threading.Event()

    def compile_grammar(self, text: str, *, fails: bool = False) -> tuple[int, int]:
        self.thread = threading.get_native_id()
        self.go.wait(30)
        if fails:
            raise RuntimeError(text)
        return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, self.thread)

    def clear_cache(self) -> int:
        return threading.get_native_id()


def test_compiles_give_way_and_nothing_else_does() -> None:
    here = threading.get_native_id()
    own = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, here)
    compiler = Compiler()
    compiler.go.set()
    nice = NiceCompiler(compiler, threads=1)
    policy, niceness = nice.compile_grammar("a")
    assert niceness == min(19, own[1] + COMPILE_NICENESS)
    assert policy == (os.SCHED_IDLE if pool._may_come_back() else os.SCHED_OTHER)
    assert nice.clear_cache() == here
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, here)) == own
    with pytest.raises(RuntimeError, match="no grammar"):
        nice.compile_grammar("no grammar", fails=True)


def test_a_long_compile_gets_a_share_of_a_busy_machine() -> None:
    compiler = Compiler()
    nice = NiceCompiler(compiler, threads=1, patience_s=0.3)
    found: list[tuple[int, int]] = []
    asking = threading.Thread(target=lambda: found.append(nice.compile_grammar("long")))
    asking.start()
    deadline = time.monotonic() + 30
    while not compiler.thread or os.sched_getscheduler(compiler.thread) != os.SCHED_OTHER:
        assert time.monotonic() < deadline
    compiler.go.set()
    asking.join()
    assert found[0][0] == os.SCHED_OTHER


def test_a_compile_that_gives_way_late_gets_its_share_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, shared, late = Compiler(), threading.Event(), threading.Event()
    give_way, share = pool._take_what_is_left, pool._take_a_share

    def give_way_late(thread: int) -> None:
        late.wait(30)
        give_way(thread)

    def note(thread: int) -> None:
        share(thread)
        shared.set()

    monkeypatch.setattr(pool, "_take_what_is_left", give_way_late)
    monkeypatch.setattr(pool, "_take_a_share", note)
    nice = NiceCompiler(compiler, threads=1, patience_s=0.01)
    asking = threading.Thread(target=lambda: nice.compile_grammar("long"))
    asking.start()
    assert shared.wait(30)
    late.set()
    deadline = time.monotonic() + 30
    while not compiler.thread or os.sched_getscheduler(compiler.thread) != os.SCHED_OTHER:
        assert time.monotonic() < deadline
    compiler.go.set()
    asking.join()


def test_a_compile_over_the_limit_is_given_up_and_nobody_waits_behind_it() -> None:
    compiler = Compiler()
    nice = NiceCompiler(compiler, threads=1, limit_s=0.5, patience_s=0.01)
    with pytest.raises(CompileTooLongError, match=r"its grammar was not compiled within 0\.5 s"):
        nice.compile_grammar("endless")
    stuck = compiler.thread
    with pytest.raises(CompileTooLongError):
        nice.compile_grammar("another")
    assert compiler.thread not in {0, stuck}
    compiler.go.set()
    assert nice.compile_grammar("quick")


def test_a_process_that_compiles_lets_go_of_the_gil_quickly() -> None:
    before = sys.getswitchinterval()
    try:
        compile_pool(1).shutdown()
        assert sys.getswitchinterval() <= 0.0001
    finally:
        sys.setswitchinterval(before)


def test_a_refusal_ends_and_lasts_longer_the_next_time() -> None:
    now = [0.0]
    refusals = Refusals(clock=lambda: now[0])
    assert refusals.reason("g") is None
    for lasts_s in (60, 120, 240):
        refusals.refuse("g", "too slow")
        now[0] += lasts_s - 1
        assert refusals.reason("g") == "too slow"
        now[0] += 1
        assert refusals.reason("g") is None
        assert refusals.offended_before("g")
    refusals.forgive("g")
    assert not refusals.offended_before("g")


def test_refusals_are_bounded() -> None:
    refusals = Refusals(clock=lambda: 0.0)
    for number in range(10_000):
        refusals.refuse(number, "too slow")
    assert refusals.reason(0) is None
    assert refusals.reason(9_999) == "too slow"


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache = GrammarCache(10, size_of=len, in_use=lambda value: value in held)
    held: set[str] = set()
    cache["a"], cache["b"], cache["c"] = "xxxx", "xxxx", "xx"
    assert cache.get("a") == "xxxx"
    cache["d"] = "xx"
    assert list(cache) == ["c", "a", "d"]
    assert cache.bytes == 8
    cache["d"] = "xxx"
    assert cache.bytes == 9
    assert cache.pop("nothing") is None
    cache["too large"] = "x" * 11
    assert "too large" not in cache
    cache.clear()
    assert (cache.bytes, cache.get("a")) == (0, None)


def test_what_leaves_the_cache_is_kept_until_somebody_with_time_lets_it_go() -> None:
    class Grammar:
        pass

    held: set[Grammar] = set()
    cache = GrammarCache(2, size_of=lambda _: 1, in_use=lambda value: value in held)
    grammars = [Grammar() for _ in range(5)]
    alive = [weakref.ref(grammar) for grammar in grammars]
    held.add(grammars[0])
    for number, grammar in enumerate(grammars):
        cache[number] = grammar
    cache.pop(4)
    cache.clear()
    del grammar
    grammars.clear()
    assert all(ref() is not None for ref in alive)
    cache.let_go()
    assert [ref() is not None for ref in alive] == [True, False, False, False, False]
    held.clear()
    cache.let_go()
    assert alive[0]() is None


BYTES = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": len(BYTES),
                "content": "<end>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {character: number for number, character in enumerate(BYTES)},
            "merges": [],
        },
    }
)


def test_a_child_tries_grammars_and_is_killed_when_one_takes_too_long() -> None:
    pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
    trial = Trial(TrialSetup("llguidance", TOKENIZER, {"vocabulary": {"eos_token": len(BYTES)}}))
    try:
        assert trial.ends_within("json", schema(type="string"), 60)
        assert trial.ends_within("json", schema(type="no such type"), 60)  # refused, but in time
        assert trial._process is not None
        first = trial._process.pid
        assert not trial.ends_within("json", schema(type="string", enum=[f"v{n}" for n in range(50_000)]), 0.001)
        assert not os.path.exists(f"/proc/{first}")
        assert trial.ends_within("json", schema(type="string"), 60)
        assert trial._process.pid != first
    finally:
        trial.close()


def test_a_child_that_was_started_ahead_is_the_one_that_is_asked() -> None:
    pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
    trial = Trial(TrialSetup("llguidance", TOKENIZER, {"vocabulary": {"eos_token": len(BYTES)}}))
    try:
        trial.warm_up()
        assert trial._process is not None
        first = trial._process.pid
        assert trial.ends_within("json", schema(type="string"), 60)
        # The thread that got it ready has ended by now; the child lives on.
        assert trial.ends_within("json", schema(type="string"), 60)
        assert trial._process.pid == first
    finally:
        trial.close()


def test_without_a_child_to_ask_a_grammar_is_taken_for_harmless() -> None:
    trial = Trial(TrialSetup("no such backend", "", {}))
    assert trial.ends_within("json", schema(type="string"), 60)
    trial.close()
