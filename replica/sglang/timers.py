"""The hooks around SGLang's scheduler functions.

What counts as what, in both event loops:

    step      from one `ingest_requests` to the next
    forward   `run_batch` and `launch_batch_sample_if_needed` without the hooks inside them, and the wait for the GPU
              (`copy_done`) at the start of `process_batch_result`
    hooks     the grammar poll, the mask fill, custom logit processors, computing log probabilities, and all of
              `process_batch_result` after that wait: accept, log probabilities, stop, output; the rest is `other`

In the overlap loop the results processed in a step are those of the batch before.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.sglang.shares import Share, output_shares, processor_shares, prompt_shares, token_shares

_ACCEPT, _LOGPROBS, _PROMPT, _SAMPLING, _OUTPUT = (
    KIND_INDEX[kind]
    for kind in (
        HookKind.grammar_accept,
        HookKind.logprobs,
        HookKind.prompt_logprobs,
        HookKind.sampling,
        HookKind.output,
    )
)
_now = time.perf_counter
_cpu = time.thread_time
Original = Callable[..., Any]


class SglangTimers:
    """One scheduler's hooks. All of them run on its step thread."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder
        self._batch: Any = None

    # The loop.

    def ingest_requests(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `Scheduler.ingest_requests`: where an iteration begins."""
        self.recorder.step_begins()
        return original(*args, **kwargs)

    def run_batch(self, original: Original, scheduler: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `Scheduler.run_batch`."""
        mode = batch.forward_mode
        decoding = len(getattr(batch, "decoding_reqs", None) or ())
        if mode.is_decode():
            name = "decode"
        elif mode.is_mixed() or decoding:
            name = "mixed"
        elif mode.is_extend():
            name = "prefill"
        else:
            name = "none"
        prompt_tokens = 0 if name in {"decode", "none"} else int(batch.extend_num_tokens or 0) - decoding
        self.recorder.batch(name, len(batch.reqs), prompt_tokens)
        return self._model(original, batch, (scheduler, batch, *args), kwargs)

    def launch_sample(self, original: Original, scheduler: Any, result: Any, batch: Any) -> Any:
        """Around `Scheduler.launch_batch_sample_if_needed`."""
        if result is None or result.delay_sample_func is None:
            return original(scheduler, result, batch)
        return self._model(original, batch, (scheduler, result, batch), {})

    def process_batch_result(self, original: Original, scheduler: Any, batch: Any, result: Any) -> Any:
        """Around `Scheduler.process_batch_result`."""
        recorder = self.recorder
        self._batch = batch
        start, cpu_s = _now(), _cpu()
        _wait_for_device(result)
        waited = _now()
        recorder.forward((waited - start) * 1e6, (_cpu() - cpu_s) * 1e6)
        first = len(recorder.hooks)
        try:
            return original(scheduler, batch, result)
        finally:
            recorder.rest_of_section((_now() - waited) * 1e6, first)

    def _model(self, original: Original, batch: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        recorder = self.recorder
        self._batch = batch
        before_us, start, cpu_s = recorder.hook_us, _now(), _cpu()
        try:
            return original(*args, **kwargs)
        finally:
            hook_us = recorder.hook_us - before_us
            us = (_now() - start) * 1e6
            cpu_us = (_cpu() - cpu_s) * 1e6
            # Hooks inside are taken as busy throughout: better too much of their CPU time than too little.
            recorder.forward(max(0.0, us - hook_us), max(0.0, cpu_us - hook_us))

    # Hooks inside the forward pass: sections of their own.

    def update_mask(self, original: Original, info: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `SamplingBatchInfo.update_regex_vocab_mask`; its rows are timed by their grammar objects."""
        if not info.grammars:
            return original(info, *args, **kwargs)
        recorder = self.recorder
        start, first = _now(), len(recorder.hooks)
        try:
            return original(info, *args, **kwargs)
        finally:
            recorder.rest_of_section((_now() - start) * 1e6, first)

    def compute_prompt_logprobs(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `InputLogprobProcessor.forward`."""
        return self._section(_PROMPT, prompt_shares, original, args, kwargs)

    def compute_logprobs(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `OutputLogprobProcessor.compute_logprobs` and `.compute_logprobs_only`."""
        return self._section(_LOGPROBS, token_shares, original, args, kwargs)

    def custom_processor(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `apply_custom_logit_processor`."""
        return self._section(_SAMPLING, processor_shares, original, args, kwargs)

    # Hooks inside `process_batch_result`, whose section they are part of.

    def move_logprobs(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `SchedulerBatchResultProcessor.move_logprobs_to_cpu`: of a prefill."""
        batch = self._batch
        if batch is None or not batch.return_logprob:
            return original(*args, **kwargs)
        return self._shared(_PROMPT, prompt_shares(batch) or token_shares(batch), original, args, kwargs)

    def normalize_outputs(self, original: Original, *args: Any, **kwargs: Any) -> Any:
        """Around `SchedulerBatchResultProcessor._normalize_decode_outputs`: turns tensors into lists."""
        batch = self._batch
        if batch is None or not batch.return_logprob:
            return original(*args, **kwargs)
        return self._shared(_LOGPROBS, token_shares(batch), original, args, kwargs)

    def decode_logprobs(self, original: Original, processor: Any, *, req: Any, **kwargs: Any) -> Any:
        """Around `SchedulerBatchResultProcessor._apply_decode_logprobs`."""
        return self._timed(_LOGPROBS, req.rid, original, (processor,), kwargs | {"req": req})

    def prefill_logprobs(self, original: Original, processor: Any, i: int, req: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `SchedulerLogprobResultProcessor.add_logprob_return_values`, prompt log probabilities included."""
        kind = _PROMPT if req.logprob_start_len is not None and req.logprob_start_len >= 0 else _LOGPROBS
        return self._timed(kind, req.rid, original, (processor, i, req, *args), kwargs)

    def stream_output(self, original: Original, streamer: Any, reqs: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `SchedulerOutputStreamer.stream_output`: everybody's, or of those whose log probabilities fill it."""
        return self._shared(_OUTPUT, output_shares(reqs), original, (streamer, reqs, *args), kwargs)

    def _section(
        self,
        kind: int,
        shares: Callable[[Any], list[Share]],
        original: Original,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        start, first = _now(), len(self.recorder.hooks)
        owners = [] if self._batch is None else shares(self._batch)
        try:
            return self._shared(kind, owners, original, args, kwargs)
        finally:
            self.recorder.rest_of_section((_now() - start) * 1e6, first)

    def _shared(
        self, kind: int, owners: list[Share], original: Original, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        recorder = self.recorder
        start = _now()
        recorder.current = (max(owners, key=_part)[0] if owners else None, kind, start)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.current = None
            us = (_now() - start) * 1e6
            if owners:
                recorder.hooks.extend([(rid, kind, us * part) for rid, part in owners])
            else:
                recorder.hooks.append((None, kind, us))

    def _timed(self, kind: int, rid: str, original: Original, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        recorder = self.recorder
        start = _now()
        recorder.current = (rid, kind, start)
        try:
            return original(*args, **kwargs)
        finally:
            recorder.current = None
            recorder.hooks.append((rid, kind, (_now() - start) * 1e6))


def _wait_for_device(result: Any) -> None:
    """Wait for what SGLang would wait for a moment later, so that the wait is not taken for hook time."""
    copied = getattr(result, "copy_done", None)
    if copied is not None:
        copied.synchronize()
        return
    tokens = getattr(result, "next_token_ids", None)
    if getattr(tokens, "is_cuda", False):
        import torch

        torch.cuda.current_stream(result.next_token_ids.device).synchronize()


def _part(share: Share) -> float:
    return share[1]
