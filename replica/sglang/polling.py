"""Waiting for grammars: without sleeping in the step, and not for longer than the compile limit.

Stock SGLang 0.5.23 sleeps inside every scheduler step, up to 5 ms, while any grammar compiles, and gives up after
10,000 such polls. Where one rank decides for itself (the usual case) only requests whose grammar is ready, or past the
limit, are shown to SGLang's own function, which then has nothing to wait for. With several ranks, all of which must ask
each other in every step, it runs as it is.
"""

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from replica.recorder.judge import Verdict
from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.sglang.endings import tell
from replica.sglang.grammars import GrammarTimers

_POLL = KIND_INDEX[HookKind.grammar_poll]
_now = time.perf_counter
# With nothing to run there is no step to hold up, and the loop must not spin.
_IDLE_WAIT_S = 0.001
# For SGLang's function while it is shown a request that is past the limit: one look, no wait worth the name.
_ONE_LOOK_S = 1e-4
# Kept on the request: when its grammar was asked for.
_ASKED = "_steplane_asked_s"


class GrammarPolling:
    """Around the two functions of `GrammarManager`."""

    def __init__(self, recorder: StepRecorder, timers: GrammarTimers, *, sleepless: bool) -> None:
        self._recorder = recorder
        self._timers = timers
        self._sleepless = sleepless

    def admit(self, original: Callable[..., bool], manager: Any, req: Any) -> bool:
        """Around `process_req_with_grammar`: every request passes here once."""
        params = req.sampling_params
        if getattr(params, "stop_strs", None) or getattr(params, "stop_regex_strs", None):
            self._timers.time_stop(req)
        queued = original(manager, req)
        if queued:
            setattr(req, _ASKED, _now())
        elif req.grammar is not None:
            self._timers.own(req.grammar, req.rid)
        return queued

    def ready(self, original: Callable[..., list[Any]], manager: Any) -> list[Any]:
        """Around `get_ready_grammar_requests`."""
        start = _now()
        self._recorder.current = None
        overdue = self._overdue(manager)
        alone = manager.grammar_sync_size == 1 and manager.pp_size == 1
        if alone and self._sleepless:
            done = self._without_waiting(original, manager, overdue)
        elif overdue:
            done = _with_interval(original, manager, _ONE_LOOK_S)
        else:
            done = original(manager)
        for req in done:
            self._left_queue(manager, req, overdue.get(req.rid))
        if not done and nothing_runs(manager.scheduler):
            # Nobody waits but those whose grammar it is: no step of theirs.
            return done
        us = (_now() - start) * 1e6
        self._recorder.hooks.append((None, _POLL, us))
        self._recorder.section(us)
        return done

    def _without_waiting(
        self, original: Callable[..., list[Any]], manager: Any, overdue: dict[str, Verdict]
    ) -> list[Any]:
        queue = manager.grammar_queue
        shown = [req for req in queue if req.rid in overdue or _settled(req)]
        if not shown:
            if nothing_runs(manager.scheduler):
                wait([req.grammar for req in queue], timeout=_IDLE_WAIT_S, return_when=FIRST_COMPLETED)
            return []
        kept = [req for req in queue if not (req.rid in overdue or _settled(req))]
        manager.grammar_queue = shown
        try:
            return _with_interval(original, manager, _ONE_LOOK_S)
        finally:
            # What was settled meanwhile is shown next time.
            manager.grammar_queue = [*manager.grammar_queue, *kept]

    def _overdue(self, manager: Any) -> dict[str, Verdict]:
        """Requests past the compile limit that are to be failed now; SGLang's own counter then does it on all ranks."""
        judge, now = self._recorder.judge, _now()
        overdue: dict[str, Verdict] = {}
        for req in manager.grammar_queue:
            verdict = judge.compile(req.rid, (now - getattr(req, _ASKED, now)) * 1e3)
            if verdict is None or _settled(req):
                continue
            if verdict.abort:
                overdue[req.rid] = verdict
                req.grammar_wait_ct = manager.SGLANG_GRAMMAR_MAX_POLL_ITERATIONS
            else:
                # Said once.
                setattr(req, _ASKED, float("inf"))
            self._recorder.convict(verdict)
        return overdue

    def _left_queue(self, manager: Any, req: Any, verdict: Verdict | None) -> None:
        ms = (_now() - getattr(req, _ASKED, _now())) * 1e3
        kind = req.grammar_key[0] if req.grammar_key else "?"
        if verdict is not None:
            tell(req, verdict.reason)
            # Too slow today is not invalid for ever.
            _forget(manager.grammar_backend, req.grammar_key)
            self._recorder.compiled(req.rid, kind, ms, verdict.reason)
        elif req.grammar is None or req.to_finish is not None:
            message = getattr(req.to_finish, "message", None) or "ended while its grammar was compiled"
            self._recorder.compiled(req.rid, kind, ms, str(message))
        else:
            self._timers.own(req.grammar, req.rid)
            self._recorder.compiled(req.rid, kind, ms, None)


def _settled(req: Any) -> bool:
    """Ready, failed or aborted."""
    grammar = req.grammar
    return grammar is None or req.finished() or not isinstance(grammar, Future) or grammar.done()


def nothing_runs(scheduler: Any) -> bool:
    """Whether there is no batch whose step a wait would hold up."""
    running = scheduler.running_batch
    return (running is None or running.is_empty()) and not scheduler.waiting_queue and scheduler.chunked_req is None


def _with_interval(original: Callable[..., list[Any]], manager: Any, interval_s: float) -> list[Any]:
    before = manager.SGLANG_GRAMMAR_POLL_INTERVAL
    manager.SGLANG_GRAMMAR_POLL_INTERVAL = min(before, interval_s)
    try:
        return original(manager)
    finally:
        manager.SGLANG_GRAMMAR_POLL_INTERVAL = before


def _forget(backend: Any, key: Any) -> None:
    backend.cache.pop(key, None)
