"""The engine: one step thread that advances every running sequence together.

    receive → poll grammars → admit → forward pass → hooks of every sequence → ship

The step thread owns all sequences; other threads reach it through `submit`, `abort` and `close` only. Whatever one
sequence does wrong ends that sequence, never the step. Outputs leave once a step, all sequences together.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from replica.recorder.judge import Verdict
from replica.recorder.recorder import StepRecorder, silent_recorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.simulator.compile import GrammarCompiler, Ready
from replica.simulator.finish import ABORTED, Finish, failed, over_budget, overloaded, refused
from replica.simulator.forward import Forward, sharpen_timer
from replica.simulator.grammar import GrammarBackend, GrammarError
from replica.simulator.hooks import Hook, HookTime, StepObserver, StepRecord
from replica.simulator.logprobs import LogprobGatherer
from replica.simulator.mask import Mask
from replica.simulator.sampler import Sampler
from replica.simulator.sequence import Output, Sequence
from replica.simulator.settings import Settings
from replica.simulator.vocabulary import Vocabulary

_now = time.perf_counter
# The recorder's numbers of hook kinds, whose names are ours.
_INDEX: dict[str, int] = {kind.value: index for kind, index in KIND_INDEX.items()}


@dataclass(frozen=True, slots=True)
class _Abort:
    """Names one sequence, or all whose id starts with `rid`, or all. With a `reason` `rid` is meant as it stands."""

    sequence: Sequence | None = None
    rid: str = ""
    everything: bool = False
    reason: str = ""

    def means(self, sequence: Sequence) -> bool:
        if self.sequence is not None:
            return sequence is self.sequence
        if self.reason:
            return sequence.rid == self.rid
        return self.everything or (self.rid != "" and sequence.rid.startswith(self.rid))


@dataclass(frozen=True, slots=True)
class _FlushCache:
    pass


@dataclass(slots=True)
class EngineLoad:
    """Counters and gauges that the step thread writes and any thread may read; each field is consistent by itself."""

    running: int = 0
    waiting: int = 0
    grammar_queue: int = 0
    used_tokens: int = 0
    steps: int = 0
    tokens: int = 0
    tokens_per_s: float = 0.0
    """Over the last second at work."""
    idle_s: float = 0.0
    poll_s: float = 0.0
    forward_s: float = 0.0
    sampling_s: float = 0.0
    hooks_s: float = 0.0
    hook_s: dict[Hook, float] = field(default_factory=lambda: dict.fromkeys(Hook, 0.0))
    idle: bool = True
    last_step_s: float = 0.0
    """When the loop last came round or woke up (`time.perf_counter`)."""

    @property
    def stalled_s(self) -> float:
        """For how long the loop has been at work without coming round."""
        return 0.0 if self.idle else time.perf_counter() - self.last_step_s


class Engine:
    """A replica's engine. `ship` is called on the step thread with the outputs of a step; it must not block."""

    def __init__(
        self,
        settings: Settings,
        vocabulary: Vocabulary,
        backend: GrammarBackend,
        ship: Callable[[list[Output]], None],
        recorder: StepRecorder | None = None,
    ) -> None:
        self.recorder = recorder or silent_recorder()
        self.recorder.on_verdict = self._judged
        self.load = EngineLoad()
        self.forward = Forward(settings.forward)
        self.sampler = Sampler(vocabulary, settings.seed, settings.reply_tokens)
        self.observers: list[StepObserver] = []
        self._settings = settings
        self._vocabulary = vocabulary
        self._ship = ship
        self._compiler = GrammarCompiler(backend, settings, self.recorder)
        self._gatherer = LogprobGatherer(vocabulary)
        self._mask = Mask(vocabulary.size)
        self._inbox: deque[Sequence | _Abort | _FlushCache] = deque()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._outputs: list[Output] = []
        self._throughput_from = (0.0, 0)
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="step", daemon=True)

    # From any thread.

    def start(self) -> None:
        self._thread.start()

    def submit(self, sequence: Sequence) -> None:
        self._post(sequence)

    def abort(self, rid: str, *, everything: bool = False) -> None:
        """End the sequences whose id starts with `rid`, or all of them."""
        self._post(_Abort(rid=rid, everything=everything))

    def cancel(self, sequence: Sequence) -> None:
        """End this very sequence: its client has gone."""
        self._post(_Abort(sequence=sequence))

    def _judged(self, verdict: Verdict) -> None:
        """The recorder, on whichever thread, found a request over a limit."""
        if verdict.abort:
            self._post(_Abort(rid=verdict.rid, reason=verdict.reason))

    def flush_cache(self) -> None:
        """Forget all compiled grammars."""
        self._post(_FlushCache())

    def close(self, timeout_s: float | None = None) -> None:
        """Stop after the step that runs, and wait for it: some masks take a grammar engine minutes."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._compiler.close()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _post(self, message: Sequence | _Abort | _FlushCache) -> None:
        with self._wake:
            self._inbox.append(message)
            self._wake.notify()

    # The step thread.

    def _run(self) -> None:
        sharpen_timer()
        while self._receive():
            record = StepRecord(self.load.steps, _now())
            self._poll_grammars(record)
            self._admit()
            self._publish()
            if self._running:
                self._forward(record)
                self._hooks(record)
                self._account(record)
            self._ship_outputs()

    def _receive(self) -> bool:
        """Take what other threads posted, sleeping while there is nothing to do. False: the engine was closed."""
        with self._wake:
            self.recorder.step_begins()
            if not (self._running or self._waiting or len(self._compiler)):
                idle_since = _now()
                self.load.idle = True
                self._publish()
                while not (self._inbox or self._closed):
                    self._wake.wait()
                self.load.last_step_s = _now()
                self.load.idle = False
                self._throughput_from = (self.load.last_step_s, self.load.tokens)
                self.load.idle_s += self.load.last_step_s - idle_since
                self.recorder.step_begins()
            messages = list(self._inbox)
            self._inbox.clear()
            closed = self._closed
        for message in messages:
            match message:
                case Sequence():
                    try:
                        self._enqueue(message)
                    except BaseException as error:  # copying a cached grammar runs its engine, too
                        self._end(message, failed(f"{type(error).__name__}: {error}"))
                case _Abort():
                    self._abort(message)
                case _FlushCache():
                    self._compiler.clear()
        return not closed

    def _enqueue(self, sequence: Sequence) -> None:
        limit = self._settings.max_queued_requests
        if limit is not None and len(self._waiting) >= limit:
            self._end(sequence, overloaded("The request queue is full."))
            return
        spec = sequence.params.grammar
        if spec is None:
            self._waiting.append(sequence)
            return
        ready = self._compiler.request(sequence, spec)
        if ready is not None:
            self._take(ready)

    def _poll_grammars(self, record: StepRecord) -> None:
        if len(self._compiler):
            start = _now()
            self._take(self._compiler.poll())
            record.poll_us = (_now() - start) * 1e6
            self.load.poll_s += record.poll_us * 1e-6
            self.recorder.hooks.append((None, _INDEX[HookKind.grammar_poll], record.poll_us))
            self.recorder.section(record.poll_us)

    def _take(self, ready: Ready) -> None:
        self._waiting.extend(ready.sequences)
        for sequence, reason in ready.failed:
            self._end(sequence, refused(reason))

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._settings.max_running_requests:
            self._running.append(self._waiting.popleft())

    def _forward(self, record: StepRecord) -> None:
        """Prefill what fits in this pass, and wait for it. Sequences still in prefill yield no token."""
        budget = self._settings.chunked_prefill_size
        for sequence in self._running:
            missing = len(sequence.prompt) - sequence.prefilled
            if missing > 0 and budget > 0:
                chunk = min(missing, budget)
                sequence.prefilled += chunk
                budget -= chunk
        record.sequences = len(self._running)
        record.prompt_tokens = self._settings.chunked_prefill_size - budget
        decoding = any(s.output for s in self._running)
        mode = "decode" if record.prompt_tokens == 0 else "mixed" if decoding else "prefill"
        self.recorder.batch(mode, record.sequences, record.prompt_tokens)
        record.forward_us = self.forward.run(record.sequences, record.prompt_tokens) * 1e6
        self.recorder.forward(record.forward_us)

    def _hooks(self, record: StepRecord) -> None:
        """The gap that this program is about: every sequence's CPU work, one after the other."""
        start = _now()
        for sequence in self._running:
            if sequence.prefilled < len(sequence.prompt):
                continue
            try:
                self._advance(sequence, record)
            except GrammarError as error:
                self._end(sequence, failed(f"Grammar accept_token failed: {error}"))
            except BaseException as error:  # one sequence's fault must not end the others; a Rust panic is no Exception
                self._end(sequence, failed(f"{type(error).__name__}: {error}"))
        self._running = [s for s in self._running if s.finish is None]
        record.hooks_us = (_now() - start) * 1e6 - record.sampling_us
        recorder = self.recorder
        recorder.current = None
        first = len(recorder.hooks)
        recorder.hooks.extend([(rid, _INDEX[hook], us) for rid, hook, us in record.hooks])
        recorder.rest_of_section(record.hooks_us, first)
        # Choosing tokens stands for GPU work.
        recorder.forward(record.sampling_us, record.sampling_us)

    def _advance(self, sequence: Sequence, record: StepRecord) -> None:
        """One token for one sequence: mask, sample, accept, log probabilities, stop."""
        grammar, wanted, mask = sequence.grammar, sequence.logprobs, self._mask
        rid, timed, recorder = sequence.rid, record.hooks.append, self.recorder
        prompt_logprobs = logprobs = row = None
        terminated = False
        if wanted is not None and wanted.prompt_start >= 0 and not sequence.output:
            start = _now()
            recorder.current = (rid, _INDEX[HookKind.prompt_logprobs], start)
            prompt_logprobs = self._gatherer.prompt(sequence.prompt, wanted, sequence.key, self.sampler.logits)
            timed(HookTime(rid, Hook.prompt_logprobs, (_now() - start) * 1e6))
        if grammar is None:
            start = _now()
            token = self.sampler.plain(sequence)
        else:
            start = _now()
            recorder.current = (rid, _INDEX[HookKind.grammar_fill], start)
            grammar.fill(mask)
            filled = _now()
            recorder.current = None
            timed(HookTime(rid, Hook.grammar_fill, (filled - start) * 1e6))
            start = filled
            token = self.sampler.masked(sequence, mask)
            if token < 0:
                raise GrammarError("the grammar allows no token here")
        if wanted is not None:
            row = self.sampler.top(sequence, token, wanted.top, None if grammar is None else mask)
        sampled = _now()
        record.sampling_us += (sampled - start) * 1e6
        if grammar is not None:
            recorder.current = (rid, _INDEX[HookKind.grammar_accept], sampled)
            terminated = grammar.accept(token)
            recorder.current = None
            timed(HookTime(rid, Hook.grammar_accept, (_now() - sampled) * 1e6))
        if wanted is not None and row is not None:
            start = _now()
            logprobs = self._gatherer.gather(token, row, wanted)
            timed(HookTime(rid, Hook.logprobs, (_now() - start) * 1e6))
        sequence.output.append(token)
        hold = False
        matched = None
        if sequence.stop is not None:
            start = _now()
            recorder.current = (rid, _INDEX[HookKind.stop], start)
            check = sequence.stop.check(sequence.output)
            timed(HookTime(rid, Hook.stop, (_now() - start) * 1e6))
            matched, hold = check.matched, check.hold
        sequence.finish = self._finish(sequence, token, matched, terminated)
        record.tokens += 1
        self._outputs.append(Output(sequence.outlet, token, hold, logprobs, prompt_logprobs, sequence.finish))

    def _finish(self, sequence: Sequence, token: int, matched: str | None, terminated: bool) -> Finish | None:
        """SGLang's order: stop string, stop token, length, end of the grammar."""
        params = sequence.params
        if matched is not None:
            return Finish("stop", matched=matched)
        if not params.ignore_eos and (token == self._vocabulary.eos or token in params.stop_token_ids):
            return Finish("stop", matched=token)
        if len(sequence.output) >= sequence.max_new_tokens:
            return Finish("length", length=sequence.max_new_tokens)
        if terminated or (sequence.grammar is not None and token == self._vocabulary.eos):
            return Finish("stop", matched=token)
        return None

    def _abort(self, abort: _Abort) -> None:
        for sequence in [*self._running, *self._waiting, *self._compiler.sequences()]:
            if abort.means(sequence):
                self._end(sequence, over_budget(abort.reason) if abort.reason else ABORTED)
                self._compiler.drop(sequence)
        self._running = [s for s in self._running if s.finish is None]
        self._waiting = deque(s for s in self._waiting if s.finish is None)

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        sequence.finish = finish
        self._outputs.append(Output(sequence.outlet, finish=finish))

    def _ship_outputs(self) -> None:
        if self._outputs:
            self._ship(self._outputs)
            self._outputs = []

    def _account(self, record: StepRecord) -> None:
        """Add the step to the totals and tell the observers."""
        load = self.load
        load.steps += 1
        load.tokens += record.tokens
        self._measure_throughput()
        load.forward_s += record.forward_us * 1e-6
        load.sampling_s += record.sampling_us * 1e-6
        load.hooks_s += record.hooks_us * 1e-6
        for _, hook, us in record.hooks:
            load.hook_s[hook] += us * 1e-6
        for observe in self.observers:
            observe(record)

    def _measure_throughput(self) -> None:
        now, load = _now(), self.load
        since_s, tokens = self._throughput_from
        if now - since_s >= 1.0:
            load.tokens_per_s = (load.tokens - tokens) / (now - since_s)
            self._throughput_from = (now, load.tokens)

    def _publish(self) -> None:
        load = self.load
        load.running, load.waiting = len(self._running), len(self._waiting)
        load.grammar_queue = len(self._compiler)
        load.used_tokens = sum([s.tokens for s in self._running])
        load.last_step_s = _now()
