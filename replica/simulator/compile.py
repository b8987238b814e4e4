"""Compilation off the step thread, and the step thread's wait for it: SGLang's `GrammarManager` in small.

Owns the cache of compiled grammars and the queue of sequences whose grammar is not ready. Used by the step thread only;
the executor's threads run nothing but `GrammarBackend.compile`.
"""

import os
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from replica.recorder.recorder import StepRecorder
from replica.simulator.grammar import Grammar, GrammarBackend, GrammarError, GrammarSpec
from replica.simulator.sequence import Sequence
from replica.simulator.settings import Settings


@dataclass(slots=True)
class _Waiting:
    sequence: Sequence
    spec: GrammarSpec
    future: "Future[Grammar]"
    asked_s: float
    polls: int = 0
    told: bool = False


@dataclass(slots=True)
class Ready:
    """What a poll yields: sequences whose grammar is in place, and those whose grammar failed, with the reason."""

    sequences: list[Sequence] = field(default_factory=list)
    failed: list[tuple[Sequence, str]] = field(default_factory=list)


class GrammarCompiler:
    """Gives sequences their grammar, at once from the cache or later through `poll`."""

    def __init__(self, backend: GrammarBackend, settings: Settings, recorder: StepRecorder) -> None:
        self._backend = backend
        self._recorder = recorder
        self._poll_s = settings.grammar_poll_s
        self._max_polls = settings.grammar_max_polls
        self._capacity = settings.grammar_cache
        self._cache: OrderedDict[GrammarSpec, Grammar | str] = OrderedDict()
        self._waiting: list[_Waiting] = []
        # asyncio's and SGLang's own default size.
        workers = settings.grammar_workers or min(32, (os.cpu_count() or 1) + 4)
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="grammar-compile")

    def __len__(self) -> int:
        return len(self._waiting)

    def request(self, sequence: Sequence, spec: GrammarSpec) -> Ready | None:
        """Ask for a sequence's grammar. None: it compiles now and `poll` will yield the sequence.

        A cached grammar is copied here, on the step thread, as SGLang does.
        """
        cached = self._cache.get(spec)
        if cached is None:
            future = self._executor.submit(self._backend.compile, spec)
            self._waiting.append(_Waiting(sequence, spec, future, time.perf_counter()))
            return None
        self._cache.move_to_end(spec)
        if isinstance(cached, str):
            return Ready(failed=[(sequence, f"Failed to compile {spec.kind} grammar: {cached}")])
        sequence.grammar = cached.copy()
        return Ready(sequences=[sequence])

    def poll(self) -> Ready:
        """Wait for the grammars in the queue, up to the poll interval; yields those that are ready.

        SGLang does this inside every scheduler step while any grammar compiles: the wait is everybody's.
        """
        deadline = time.perf_counter() + self._poll_s
        while time.perf_counter() < deadline and not all(w.future.done() for w in self._waiting):
            time.sleep(self._poll_s / 10)
        ready = Ready()
        still: list[_Waiting] = []
        for waiting in self._waiting:
            waiting.polls += 1
            if waiting.future.done():
                self._settle(waiting, ready)
            elif waiting.polls >= self._max_polls:
                waiting.future.cancel()
                self._store(waiting.spec, "Grammar preprocessing timed out")
                ready.failed.append((waiting.sequence, f"Grammar preprocessing timed out: {waiting.spec.kind}"))
            else:
                self._judge(waiting)
                still.append(waiting)
        self._waiting = still
        return ready

    def drop(self, sequence: Sequence) -> None:
        """Forget a sequence that was aborted while its grammar compiled; a running compile cannot be stopped."""
        for waiting in self._waiting:
            if waiting.sequence is sequence:
                waiting.future.cancel()
        self._waiting = [w for w in self._waiting if w.sequence is not sequence]

    def sequences(self) -> list[Sequence]:
        return [w.sequence for w in self._waiting]

    def clear(self) -> None:
        self._cache.clear()

    def close(self) -> None:
        """Stop accepting work. Compiles that run go on until the process ends."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _judge(self, waiting: _Waiting) -> None:
        """Hold a grammar that is not ready against the compile limit; whoever hears the verdict aborts the sequence."""
        if waiting.told:
            return
        rid = waiting.sequence.rid
        verdict = self._recorder.judge.compile(rid, (time.perf_counter() - waiting.asked_s) * 1e3)
        if verdict is not None:
            waiting.told = True
            self._recorder.convict(verdict)

    def _settle(self, waiting: _Waiting, ready: Ready) -> None:
        error = self._fill(waiting, ready)
        ms = (time.perf_counter() - waiting.asked_s) * 1e3
        self._recorder.compiled(waiting.sequence.rid, waiting.spec.kind, ms, error)

    def _fill(self, waiting: _Waiting, ready: Ready) -> str | None:
        """Hand a finished compile on; the reason when it failed."""
        try:
            grammar = waiting.future.result()
        except BaseException as error:  # a Rust panic is no Exception
            reason = str(error) if isinstance(error, GrammarError) else f"Grammar compilation failed: {error}"
            self._store(waiting.spec, reason)
            ready.failed.append((waiting.sequence, f"Failed to compile {waiting.spec.kind} grammar: {reason}"))
            return reason
        self._store(waiting.spec, grammar)
        waiting.sequence.grammar = grammar.copy()
        ready.sequences.append(waiting.sequence)
        return None

    def _store(self, spec: GrammarSpec, value: Grammar | str) -> None:
        self._cache[spec] = value
        self._cache.move_to_end(spec)
        while len(self._cache) > self._capacity:
            self._cache.popitem(last=False)
