"""Timers around the engine core's step.

What counts as what:

    step      from one `_process_input_queue` to the next; waiting for requests in it is no step
    hooks     filling the grammar bitmask, `update_from_output` (accept is each request's own, the rest is `other`),
              prompt log probabilities, gathering log probabilities
    forward   the rest of `step`, without scheduling: launching the model and waiting for it

Stop strings, and the text of log probabilities, are the API server's work in vLLM, not the step's.
"""

import time
from collections.abc import Callable
from typing import Any

from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind, RawHook

_LOGPROBS, _PROMPT = KIND_INDEX[HookKind.logprobs], KIND_INDEX[HookKind.prompt_logprobs]
_now = time.perf_counter
_cpu = time.thread_time
Original = Callable[..., Any]


# On a model runner's output: the hooks that ran in the worker's process.
_CARRIED = "_steplane_hooks"


class VllmTimers:
    """One process's timers, all of them on its step thread.

    With `carry` this is a worker's process: it has no steps of its own, and its hooks travel to the engine core with
    the model runner's output.
    """

    def __init__(self, recorder: StepRecorder, *, carry: bool) -> None:
        self._recorder = recorder
        self._carry = carry
        self._scheduling_us = 0.0
        self._runner: Any = None

    def process_input_queue(self, original: Original, core: Any) -> None:
        """Around `EngineCoreProc._process_input_queue`: where an iteration begins."""
        self._recorder.step_begins()
        waits = not core.has_work()
        original(core)
        if waits:
            self._recorder.step_begins()

    def step(self, original: Original, core: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `EngineCore.step` and `.step_with_batch_queue`."""
        recorder = self._recorder
        hooks_us, self._scheduling_us = recorder.hook_us, 0.0
        start, cpu_s = _now(), _cpu()
        try:
            return original(core, *args, **kwargs)
        finally:
            us, cpu_us = (_now() - start) * 1e6, (_cpu() - cpu_s) * 1e6
            other_us = recorder.hook_us - hooks_us + self._scheduling_us
            recorder.forward(max(0.0, us - other_us), max(0.0, cpu_us - other_us))

    def schedule(self, original: Original, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `Scheduler.schedule`: says what the step will be."""
        start = _now()
        output = original(scheduler, *args, **kwargs)
        self._scheduling_us += (_now() - start) * 1e6
        scheduled = output.num_scheduled_tokens
        if scheduled:
            prompt_tokens, decoding = _prompt_tokens(scheduler, scheduled)
            mode = "decode" if prompt_tokens == 0 else "mixed" if decoding else "prefill"
            self._recorder.batch(mode, len(scheduled), prompt_tokens)
        return output

    def update(self, original: Original, scheduler: Any, scheduled: Any, output: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `Scheduler.update_from_output`: takes in what the output carries."""
        carried = getattr(output, _CARRIED, ())
        if carried:
            us = sum([hook[2] for hook in carried])
            self._recorder.hooks.extend(carried)
            self._recorder.section(us)
            # The worker's thread was busy with them, not this one: they count as worked, not as starved.
            self._recorder.forward(0.0, -us)
        return self.section(original, scheduler, scheduled, output, *args, **kwargs)

    def section(self, original: Original, scheduler: Any, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `Scheduler.get_grammar_bitmask`, and for `update`."""
        if not scheduled.num_scheduled_tokens:
            # The engine core goes round and round while all that it has is waiting for grammars: no step of anybody's.
            return original(scheduler, scheduled, *args, **kwargs)
        start, first = _now(), len(self._recorder.hooks)
        try:
            return original(scheduler, scheduled, *args, **kwargs)
        finally:
            self._recorder.rest_of_section((_now() - start) * 1e6, first)

    def prompt_logprobs(self, original: Original, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `GPUModelRunner._get_prompt_logprobs_dict`, which the CPU's model runner inherits."""
        wanted = dict(runner.num_prompt_logprobs)
        if not wanted:
            return original(runner, *args, **kwargs)
        return self._shared(_PROMPT, wanted, original, (runner, *args), kwargs)

    def sample_tokens(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `GPUModelRunner.sample_tokens`, the last function of a step in a worker."""
        output = original(*args, **kwargs)
        hooks = self._recorder.hooks
        if self._carry and hooks:
            carried, hooks[:] = list(hooks), []
            _load(output, carried)
        return output

    def sample(self, original: Original, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `GPUModelRunner._sample`: remembers whose tokens are being chosen."""
        self._runner = runner
        try:
            return original(runner, *args, **kwargs)
        finally:
            self._runner = None

    def gather_logprobs(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `Sampler.gather_logprobs`; within a sampling step it is the work of those who asked."""
        if self._runner is None:
            return original(*args, **kwargs)
        return self._shared(_LOGPROBS, dict(self._runner.input_batch.num_logprobs), original, args, kwargs)

    def _shared(
        self, kind: int, wanted: dict[str, int], original: Original, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        recorder = self._recorder
        # A request's share follows the values made for it; -1 asks for the whole vocabulary.
        weights = {rid: (count if count >= 0 else 1_000) + 1 for rid, count in wanted.items()}
        total = sum(weights.values())
        start = _now()
        recorder.current = (max(weights, key=weights.__getitem__) if weights else None, kind, start)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.current = None
            us = (_now() - start) * 1e6
            if total:
                recorder.hooks.extend([(rid, kind, us * weight / total) for rid, weight in weights.items()])
            else:
                recorder.hooks.append((None, kind, us))
            recorder.section(us)


def _prompt_tokens(scheduler: Any, scheduled: dict[str, int]) -> tuple[int, bool]:
    """Tokens of prompts among those scheduled, and whether anybody decodes beside them."""
    total, decoding = 0, False
    for rid, count in scheduled.items():
        request = scheduler.requests.get(rid)
        # `schedule` has already moved `num_computed_tokens` on.
        if request is None or request.num_computed_tokens - count >= request.num_prompt_tokens:
            decoding = True
        else:
            total += count
    return total, decoding


def _load(output: Any, carried: list[RawHook]) -> None:
    """Put hooks on a model runner's output, or on the one that an output still under way will become."""
    if output is None:
        return
    if hasattr(output, "get_output"):
        get_output = output.get_output

        def loaded(*args: Any, **kwargs: Any) -> Any:
            result = get_output(*args, **kwargs)
            _load(result, carried)
            return result

        output.get_output = loaded
    else:
        setattr(output, _CARRIED, carried)
