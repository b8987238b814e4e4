"""Compiling away from the step thread, and giving way to it: for processors, and for the GIL.

A grammar is compiled in two kinds of thread. What is Python (reading and checking a schema) runs in a few threads of
the usual priority: they hold the GIL, and a nice thread that is put aside while it holds the GIL keeps the step thread
waiting with it (measured: 20 ms for what takes 1 ms). What is native and runs without the GIL, nearly all of the work,
runs in threads that only take processor time that nobody else wants (`SCHED_IDLE`), and in threads that are merely nice
once they have been at it for long: those who wait for a grammar must not wait for ever on a busy machine. Linux
schedules threads one by one: what a thread makes of itself is its own. Compilers that can use several threads must be
told to use one, or their own threads are not like this.
"""

import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

# A third of the weight of a normal thread. Nicer ones all but stop on a busy machine, as idle ones do.
COMPILE_NICENESS = 5
_PATIENCE_S = 2.0
# Beside a `NiceCompiler`, which has threads of its own, a pool needs some more that only wait for it: behind a compile
# that does not end, say.
WAITING_THREADS = 4
# A thread that runs Python keeps the step thread waiting for the GIL for this long at most; Python's own 5 ms is a
# whole step.
_SWITCH_INTERVAL_S = 0.0001


def compile_pool(threads: int) -> ThreadPoolExecutor:
    """An executor of `threads` threads, in a process that lets go of the GIL quickly."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    return ThreadPoolExecutor(threads, thread_name_prefix="steplane-compile")


class CompileTooLongError(RuntimeError):
    """A compile was given up. Its thread goes on with what nobody else wants until it ends."""


class NiceCompiler:
    """Takes the place of an xgrammar `GrammarCompiler`; its `compile_*` methods work in threads that give way."""

    def __init__(self, compiler: Any, threads: int, limit_s: float = 0.0, patience_s: float = _PATIENCE_S) -> None:
        """`limit_s`: when a compile is given up (0: never); `patience_s`: when it gets a share of a busy machine."""
        self._compiler = compiler
        self._turns = threading.BoundedSemaphore(threads)
        self._limit_s = limit_s or None
        self._patience_s = patience_s

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._compiler, name)
        return self._giving_way(found) if name.startswith("compile_") else found

    def _giving_way(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def compile_in_thread(*args: Any, **kwargs: Any) -> Any:
            if not self._turns.acquire(timeout=self._limit_s):
                raise self._too_long()
            try:
                return self._compile(functools.partial(method, *args, **kwargs))
            finally:
                self._turns.release()

        return compile_in_thread

    def _compile(self, work: Callable[[], Any]) -> Any:
        """In a thread of its own, which is left to itself when it does not end: nobody else has to wait behind it."""
        result: Future[Any] = Future()
        began_s = time.monotonic()
        thread = threading.Thread(target=_run_aside, args=(work, result), name="steplane-native", daemon=True)
        thread.start()
        over_s = math.inf if self._limit_s is None else began_s + self._limit_s
        while not wait([result], timeout=min(self._patience_s, max(0.0, over_s - time.monotonic()))).done:
            if time.monotonic() >= over_s:
                _take_what_is_left(thread.native_id)
                raise self._too_long()
            # Again and again: on a busy machine it may have come to give way only after it was told not to.
            _take_a_share(thread.native_id)
        return result.result()

    def _too_long(self) -> CompileTooLongError:
        return CompileTooLongError(f"step_budget_exceeded: its grammar was not compiled within {self._limit_s:g} s")


def _run_aside(work: Callable[[], Any], result: Future[Any]) -> None:
    thread = threading.get_native_id()
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + COMPILE_NICENESS)
    if _may_come_back():
        _take_what_is_left(thread)
    try:
        result.set_result(work())
    except BaseException as error:
        result.set_exception(error)


def _take_what_is_left(thread: int | None) -> None:
    _schedule(thread, "SCHED_IDLE")


def _take_a_share(thread: int | None) -> None:
    _schedule(thread, "SCHED_OTHER")


def _schedule(thread: int | None, policy: str) -> None:
    if thread is not None:
        with contextlib.suppress(OSError, AttributeError):
            os.sched_setscheduler(thread, getattr(os, policy), os.sched_param(0))


@functools.cache
def _may_come_back() -> bool:
    """Whether a thread that has left the usual scheduling class may enter it again: some containers forbid it."""

    def try_it() -> bool:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        except (OSError, AttributeError):
            return False
        return True

    # In a thread of its own, which may be lost to it.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(try_it).result()
