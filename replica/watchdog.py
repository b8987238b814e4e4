"""A thread that sees what the step thread cannot: that it has been in one hook for too long.

It wakes a few times per hard limit, reads the recorder, and when the running step is over the limit it keeps the step
thread's Python frames; when a single hook is, it names the request at once, while it still runs. The same thread keeps
the link to the feed process: what people and gateways ask for there, and starting it again when it dies. It refuses to
know how an engine ends a request.

A hook that holds the GIL (`re`, some native code) keeps this thread from running until it returns. Its end is then
judged by the recorder, and the feed, another process, shows meanwhile that the step does not end.
"""

import select
import sys
import threading
import time
import traceback

from replica.feed.process import FeedProcess
from replica.recorder.judge import WORKED, Verdict
from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KINDS, Limit

# Each look costs the step thread the GIL for about 10 µs.
_LOOKS_PER_LIMIT = 4
_SHORTEST_S, _LONGEST_S = 0.002, 0.25
_DEEPEST_FRAMES = 40


class StepWatchdog:
    """Watches one recorder from a daemon thread."""

    def __init__(self, recorder: StepRecorder, feed: FeedProcess | None) -> None:
        self._recorder = recorder
        self._feed = feed
        self._closed = threading.Event()
        hard_s = recorder.judge.limits.hard_us / 1e6
        self._look_every_s = min(max(hard_s / _LOOKS_PER_LIMIT, _SHORTEST_S), _LONGEST_S) if hard_s else _LONGEST_S
        self._thread = threading.Thread(target=self._run, name="steplane-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching, and the feed with it."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._feed is not None:
            self._feed.close()

    def look(self) -> None:
        """Compare the step that runs now with the hard limit."""
        recorder = self._recorder
        limit_us = recorder.judge.limits.hard_us
        step, current = recorder.steps, recorder.current
        if limit_us <= 0 or recorder.hooks_so_far_us() <= limit_us:
            return
        stack = thread_stack(recorder.thread_id)
        if recorder.steps != step or not recorder.caught(stack) or current is None or current is not recorder.current:
            return
        rid, index, began_s = current
        us = (time.perf_counter() - began_s) * 1e6
        kind = KINDS[index]
        if rid is None or us <= limit_us or not recorder.judge.warm(kind) or not self._worked(limit_us):
            return
        abort = recorder.judge.limits.abort_hard
        recorder.convict_running(Verdict(rid, Limit.hard, kind, us, limit_us, abort), stack)

    def _worked(self, limit_us: float) -> bool:
        recorder = self._recorder
        try:
            clock = time.pthread_getcpuclockid(recorder.thread_id)
            cpu_us = (time.clock_gettime(clock) - recorder.cpu_started_s) * 1e6 - recorder.model_cpu_us
        except OSError:
            return False
        return cpu_us >= WORKED * limit_us

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wait()
            self.look()

    def _wait(self) -> None:
        feed = self._feed
        link = None if feed is None else feed.link
        if feed is None or link is None:
            self._closed.wait(self._look_every_s)
        elif select.select([link], [], [], self._look_every_s)[0]:
            for rid, reason in feed.receive():
                self._recorder.convict(Verdict(rid, Limit.asked, None, 0.0, 0.0, abort=True, said=reason))
        if feed is not None:
            feed.keep_running()


def thread_stack(thread_id: int) -> tuple[str, ...]:
    """The Python frames of a thread, innermost last; empty when it is gone."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return ()
    return tuple(
        f"{summary.filename}:{summary.lineno} {summary.name}"
        for summary in traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_DEEPEST_FRAMES)
    )[::-1]
