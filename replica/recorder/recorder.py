"""The step thread's side of the recorder. Dense on purpose: this is what a step pays for being measured.

    step_begins → forward / hook / section → step_ends

One step of 64 sequences with three timed hooks each costs about 70 µs, of 64 plain ones 4 µs
(`python -m loadtest.bench_recorder`). A timer appends a tuple to `hooks` and that is all; sums, verdicts and the
encoding wait for the end of the step.
"""

import marshal
import threading
import time
from collections.abc import Callable

from replica.recorder.judge import Judge, Limits, StepCost, Verdict
from replica.recorder.records import (
    KINDS,
    CompileRecord,
    HookKind,
    Limit,
    Note,
    Offence,
    RawHook,
    Tag,
    encode,
)
from replica.recorder.ring import RingWriter

_STEP = Tag.step.value
_OTHER = KINDS.index(HookKind.other)

Clock = Callable[[], float]
# (request id, index into KINDS, moment it began)
Current = tuple[str | None, int, float]


class StepRecorder:
    """Collects one step at a time on the thread that first calls `step_begins`.

    `hooks` is for timers to append to; `current` for those of hooks that may hang, set before and cleared after.
    Other threads may read the public attributes and call what stands under "Any thread".
    """

    def __init__(
        self,
        ring: RingWriter | None,
        limits: Limits,
        *,
        clock: Clock = time.perf_counter,
        cpu_clock: Clock = time.thread_time,
    ) -> None:
        """`ring` None: steps are judged and forgotten. The clocks give seconds."""
        self.hooks: list[RawHook] = []
        self.current: Current | None = None
        self.started_s = 0.0
        self.cpu_started_s = 0.0
        self.model_cpu_us = 0.0
        self.thread_id = 0
        self.steps = 0
        self.judge = Judge(limits)
        self.on_verdict: Callable[[Verdict], None] = ignore
        self._ring = ring
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._forward_us = 0.0
        self.hook_us = 0.0
        self._mode = "none"
        self._sequences = 0
        self._prompt_tokens = 0
        self._idle = True
        self._busy = False
        self._stack: tuple[str, ...] = ()
        self._caught_step = -1
        self._convicted: str | None = None
        self._cold = set(range(len(KINDS)))

    # The step thread.

    def step_begins(self) -> None:
        """A new iteration of the engine's loop: ends the one before, if anything happened in it."""
        now = self._clock()
        cpu_s = self._cpu_clock()
        if self._busy:
            self._close(now, cpu_s)
        else:
            self._idle = True
            if not self.thread_id:
                self.thread_id = threading.get_ident()
            if self.hooks:
                self.hooks.clear()
        self.started_s = now
        self.cpu_started_s = cpu_s

    def batch(self, mode: str, sequences: int, prompt_tokens: int) -> None:
        """A forward pass over `sequences`, `prompt_tokens` of them prefilled, is about to be launched."""
        self._busy = True
        self._mode, self._sequences, self._prompt_tokens = mode, sequences, prompt_tokens
        if self._ring is not None:
            self._ring.step_runs(self.started_s, self.steps)

    def forward(self, us: float, cpu_us: float = 0.0) -> None:
        """Launching the model, or waiting for it, took `us` and `cpu_us` of the thread's CPU time."""
        self._forward_us += us
        self.model_cpu_us += cpu_us

    def section(self, us: float) -> None:
        """Work outside the model took `us`, the hooks appended meanwhile included."""
        self._busy = True
        self.hook_us += us

    def rest_of_section(self, us: float, first: int) -> None:
        """Like `section`; what the hooks from index `first` on do not explain goes down as the batch's own."""
        self._busy = True
        self.hook_us += us
        rest = us - sum([hook[2] for hook in self.hooks[first:]])
        if rest > 0.0:
            self.hooks.append((None, _OTHER, rest))

    def _close(self, now: float, cpu_s: float) -> None:
        hooks, ring, hook_us = self.hooks, self._ring, self.hook_us
        start_s = self.started_s
        cpu_us = max(0.0, (cpu_s - self.cpu_started_s) * 1e6 - self.model_cpu_us)
        cold = self._warm_up() if self._cold and hooks else ()
        if ring is not None:
            ring.step_runs(0.0, self.steps)
            ring.write(
                marshal.dumps(
                    (
                        _STEP,
                        start_s,
                        (now - start_s) * 1e6,
                        self._forward_us,
                        hook_us,
                        cpu_us,
                        self._mode,
                        self._sequences,
                        self._prompt_tokens,
                        self._idle,
                        cold,
                        hooks,
                    ),
                    2,
                )
            )
        if self.judge.suspects(hook_us):
            self._judge(now, cpu_us)
        hooks.clear()
        self.steps += 1
        self.current = None
        self._stack = ()
        self._convicted = None
        self._forward_us = self.hook_us = self.model_cpu_us = 0.0
        self._mode, self._sequences, self._prompt_tokens = "none", 0, 0
        self._idle = self._busy = False

    def _warm_up(self) -> tuple[int, ...]:
        """Count the steps in which each kind ran, until all have run often enough; those that now ran too early."""
        for index in {hook[1] for hook in self.hooks} & self._cold:
            self.judge.ran(KINDS[index])
            if self.judge.warm(KINDS[index]):
                self._cold.discard(index)
        return tuple({hook[1] for hook in self.hooks} & self._cold)

    def _judge(self, now: float, cpu_us: float) -> None:
        own: dict[str, dict[HookKind, float]] = {}
        for rid, index, us in self.hooks:
            if rid is not None:
                kinds = own.setdefault(rid, {})
                kind = KINDS[index]
                kinds[kind] = kinds.get(kind, 0.0) + us
        for verdict in self.judge.step(now, StepCost(self.hook_us, cpu_us, own)):
            if verdict.limit is not Limit.hard:
                self.convict(verdict)
            elif verdict.rid != self._convicted:
                self.convict(verdict, self._stack)

    # Any thread.

    def convict(self, verdict: Verdict, stack: tuple[str, ...] = ()) -> None:
        """Record an offence and have the engine act on it."""
        if self._ring is not None:
            self._ring.write(
                encode(
                    Offence(
                        seq=0,
                        at_s=self._clock(),
                        rid=verdict.rid,
                        limit=verdict.limit,
                        kind=verdict.kind,
                        us=verdict.us,
                        limit_us=verdict.limit_us,
                        abort=verdict.abort,
                        reason=verdict.reason,
                        stack=stack,
                    )
                )
            )
        self.on_verdict(verdict)

    def convict_running(self, verdict: Verdict, stack: tuple[str, ...]) -> None:
        """`convict` for the hook that still runs: its step, when it ends, will not say it again."""
        self._convicted = verdict.rid
        self.convict(verdict, stack)

    def hooks_so_far_us(self) -> float:
        """Hook time of the step that runs now, the hook that runs now included."""
        total = sum([hook[2] for hook in self.hooks])
        current = self.current
        if current is not None:
            total += (self._clock() - current[2]) * 1e6
        return total

    def caught(self, stack: tuple[str, ...]) -> bool:
        """Keep the step thread's frames for this step's offence. False: it has some already."""
        if self._caught_step == self.steps:
            return False
        self._caught_step = self.steps
        self._stack = stack
        return True

    def compiled(self, rid: str, grammar: str, ms: float, error: str | None) -> None:
        """A grammar of kind `grammar` left the compile queue after `ms`."""
        if self._ring is not None:
            self._ring.write(encode(CompileRecord(0, self._clock(), rid, grammar, ms, error)))

    def note(self, text: str) -> None:
        """Something for people to read in the feed."""
        if self._ring is not None:
            self._ring.write(encode(Note(0, self._clock(), text)))


def silent_recorder() -> StepRecorder:
    """One that writes nothing and judges nobody."""
    return StepRecorder(None, Limits(hard_us=0.0, compile_ms=0.0))


def ignore(verdict: Verdict) -> None:
    """What an engine does with a verdict until it says otherwise."""
