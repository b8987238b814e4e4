"""Structured output in vLLM: compiles timed, limited and made to give way to the step; masks timed per request.

vLLM has no compile limit of its own and no registry for grammar backends. Its manager's executor is a plain attribute
and is replaced by ours; the compiler of its xgrammar backend is made with one thread instead of eight.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from replica.grammar.pool import WAITING_THREADS, NiceCompiler, compile_pool
from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.recorder.timing import shadow
from replica.settings import ReplicaSettings

_FILL, _ACCEPT = KIND_INDEX[HookKind.grammar_fill], KIND_INDEX[HookKind.grammar_accept]
_now = time.perf_counter
_MIB = 1 << 20


class Compiles:
    """Around `StructuredOutputManager`."""

    def __init__(self, recorder: StepRecorder, settings: ReplicaSettings) -> None:
        self._recorder = recorder
        self._settings = settings
        # Request id to when its grammar was asked for. Changed by the step thread and, on completion, compile threads.
        self._asked_s: dict[str, float] = {}
        self._taken_over: Any = None

    def grammar_init(self, original: Callable[..., None], manager: Any, request: Any) -> None:
        """Around `grammar_init`: a request's grammar is asked for."""
        if request.structured_output_request is None:
            return original(manager, request)
        if self._taken_over is not manager and hasattr(manager, "executor"):
            manager.executor.shutdown(wait=False)
            manager.executor = compile_pool(self._settings.compile_threads + WAITING_THREADS)
            self._taken_over = manager
        self._asked_s[request.request_id] = _now()
        if manager.backend is None:
            with nice_compilers(self._settings):
                return original(manager, request)
        return original(manager, request)

    def create_grammar(self, original: Callable[..., Any], manager: Any, request: Any) -> Any:
        """Around `_create_grammar`, in a compile thread: the compile itself."""
        rid = request.request_id
        kind = str(getattr(request.structured_output_request.structured_output_key[0], "name", "?")).lower()
        asked_s = self._asked_s.get(rid, _now())
        error: str | None = None
        try:
            grammar = original(manager, request)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            self._asked_s.pop(rid, None)
            self._recorder.compiled(rid, kind, (_now() - asked_s) * 1e3, error)
        shadow(self._recorder, grammar, "fill_bitmask", rid, _FILL)
        shadow(self._recorder, grammar, "accept_tokens", rid, _ACCEPT)
        return grammar

    def judge(self) -> None:
        """On the step thread, once a step: who has waited too long for a grammar."""
        if not self._asked_s:
            return
        now = _now()
        for rid, asked_s in list(self._asked_s.items()):
            verdict = self._recorder.judge.compile(rid, (now - asked_s) * 1e3)
            if verdict is not None:
                self._asked_s.pop(rid, None)
                self._recorder.convict(verdict)


@contextmanager
def nice_compilers(settings: ReplicaSettings) -> Iterator[None]:
    """Whatever xgrammar compiler is made in the block gives way to the step thread and has a bounded cache."""
    try:
        import xgrammar
    except ImportError:
        yield
        return
    usual = xgrammar.GrammarCompiler

    def make(*args: Any, **kwargs: Any) -> Any:
        limits = {"max_threads": 1, "cache_enabled": True, "cache_limit_bytes": settings.grammar_cache_mib * _MIB}
        compiler = usual(*args, **(kwargs | limits))
        return NiceCompiler(compiler, settings.compile_threads, settings.give_up_s)

    xgrammar.GrammarCompiler = make
    try:
        yield
    finally:
        xgrammar.GrammarCompiler = usual
