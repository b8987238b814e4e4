"""The entry point `steplane` in the group `sglang.srt.plugins`: called in every process of an SGLang server.

Only the scheduler's process is measured. Each target is looked up before it is hooked: one that another version does
not have is left out with one clear line, its timer is off, everything else works. `STEPLANE_*` variables configure it
(replica/settings.py); `STEPLANE_OFF=1` leaves the engine entirely alone.
"""

import importlib.metadata
import inspect
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replica.attachment import Attachment, attach, measured, set_up
from replica.feed.process import EngineName
from replica.recorder.recorder import StepRecorder, silent_recorder
from replica.settings import Listen, engine_settings, read_settings
from replica.sglang import backend, requestids
from replica.sglang.endings import Endings
from replica.sglang.grammars import GrammarTimers
from replica.sglang.polling import GrammarPolling
from replica.sglang.timers import SglangTimers

log = logging.getLogger("steplane")

_SCHEDULER = "sglang.srt.managers.scheduler"
_COMPONENTS = "sglang.srt.managers.scheduler_components"


@dataclass(frozen=True, slots=True)
class Target:
    """A function of SGLang: its dotted name, the parameters we rely on, the timer that needs it."""

    name: str
    parameters: tuple[str, ...]
    timer: str
    hook: Callable[..., Any]


class Instrument:
    """The hooks of one scheduler, and what they need once it runs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._endings = Endings()
        # Until the scheduler runs, what is timed is dropped.
        self._missing: list[str] = []
        self._point_at(silent_recorder(), sleepless=False)

    def _point_at(self, recorder: StepRecorder, *, sleepless: bool) -> None:
        self.recorder = recorder
        self._timers = SglangTimers(recorder)
        self._polling = GrammarPolling(recorder, GrammarTimers(recorder), sleepless=sleepless)

    def targets(self) -> list[Target]:
        """Everything that is hooked. The hooks look their timer up when called: another recorder brings others."""
        results = f"{_COMPONENTS}.batch_result_processor.SchedulerBatchResultProcessor"
        logprobs = f"{_COMPONENTS}.logprob_result_processor.SchedulerLogprobResultProcessor"
        manager = "sglang.srt.constrained.grammar_manager.GrammarManager"
        scheduler = f"{_SCHEDULER}.Scheduler"
        processors = "sglang.srt.layers.logprob_processor"
        return [
            Target(f"{scheduler}.run_event_loop", ("self",), "everything", self._run_event_loop),
            Target(f"{scheduler}.ingest_requests", ("self",), "steps", self._timer("ingest_requests")),
            Target(f"{scheduler}.run_batch", ("self", "batch"), "forward", self._timer("run_batch")),
            Target(
                f"{scheduler}.launch_batch_sample_if_needed",
                ("self", "batch_result", "cur_batch"),
                "delayed sampling",
                self._timer("launch_sample"),
            ),
            Target(
                f"{scheduler}.process_batch_result",
                ("self", "batch", "result"),
                "results",
                self._timer("process_batch_result"),
            ),
            Target(
                "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo.update_regex_vocab_mask",
                ("self",),
                "grammar_fill",
                self._timer("update_mask"),
            ),
            Target(
                f"{processors}.InputLogprobProcessor.forward",
                ("self",),
                "prompt_logprobs",
                self._timer("compute_prompt_logprobs"),
            ),
            Target(
                f"{processors}.OutputLogprobProcessor.compute_logprobs",
                ("self",),
                "logprobs",
                self._timer("compute_logprobs"),
            ),
            Target(
                f"{processors}.OutputLogprobProcessor.compute_logprobs_only",
                ("self",),
                "logprobs of prefill-only requests",
                self._timer("compute_logprobs"),
            ),
            Target(
                "sglang.srt.layers.sampler.apply_custom_logit_processor",
                ("logits", "sampling_batch_info"),
                "sampling",
                self._timer("custom_processor"),
            ),
            Target(
                f"{results}.move_logprobs_to_cpu",
                ("self", "batch"),
                "copying prompt log probabilities",
                self._timer("move_logprobs"),
            ),
            Target(
                f"{results}._normalize_decode_outputs",
                ("self", "batch"),
                "copying log probabilities",
                self._timer("normalize_outputs"),
            ),
            Target(f"{results}._apply_decode_logprobs", ("self", "req"), "logprobs", self._timer("decode_logprobs")),
            Target(
                f"{logprobs}.add_logprob_return_values",
                ("self", "i", "req"),
                "logprobs of a prefill",
                self._timer("prefill_logprobs"),
            ),
            Target(
                f"{_COMPONENTS}.output_streamer.SchedulerOutputStreamer.stream_output",
                ("self", "reqs"),
                "output",
                self._timer("stream_output"),
            ),
            Target(f"{manager}.process_req_with_grammar", ("self", "req"), "grammars and stop strings", self._admit),
            Target(f"{manager}.get_ready_grammar_requests", ("self",), "grammar_poll", self._ready),
            Target(
                f"{scheduler}._poll_timeout_aborts", ("self",), "ending requests", self._endings.poll_timeout_aborts
            ),
            Target(f"{scheduler}.abort_request", ("self", "recv_req"), "ending requests", self._endings.abort_request),
        ]

    def install(self, register: Callable[[str, Callable[..., Any]], None]) -> None:
        """Hook every target that is there."""
        for target in self.targets():
            problem = find_problem(target)
            if problem is None:
                register(target.name, target.hook)
            else:
                self._missing.append(problem)
                log.warning("steplane: %s", problem)

    def _timer(self, name: str) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return getattr(self._timers, name)(original, *args, **kwargs)

        hook.__name__ = name
        return hook

    def _admit(self, original: Callable[..., bool], manager: Any, req: Any) -> bool:
        return self._polling.admit(original, manager, req)

    def _ready(self, original: Callable[..., list[Any]], manager: Any) -> list[Any]:
        return self._polling.ready(original, manager)

    def _run_event_loop(self, original: Callable[..., None], scheduler: Any) -> None:
        """Around `Scheduler.run_event_loop`: the engine is up."""
        with measured(self._attach, "SGLang", self._missing):
            original(scheduler)

    def _attach(self) -> Attachment | None:
        from sglang.srt.runtime_context import get_serving

        name = _name()
        if name is None:
            return None
        settings = engine_settings(self._environment, int(get_serving().port), name.rank)
        attachment = attach(settings, name, self._endings.add)
        self._point_at(attachment.recorder, sleepless=settings.sleepless)
        return attachment


def register() -> None:
    """What SGLang calls. Never raises: the engine comes first."""
    set_up(_register)


def _register() -> None:
    backend.offer()
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if _SCHEDULER not in sys.modules:
        # The launcher before it parses its arguments, the detokenizer: no step thread here.
        target = Target(requestids.RESOLVED, ("self",), "ids of samples", requestids.resolved)
        problem = find_problem(target)
        if problem is None:
            HookRegistry.register(target.name, target.hook, HookType.AROUND)
        else:
            log.warning("steplane: %s", problem)
        return
    backend.register(read_settings(os.environ, Listen("127.0.0.1", 0)))
    Instrument(os.environ).install(lambda name, hook: HookRegistry.register(name, hook, HookType.AROUND))


def find_problem(target: Target) -> str | None:
    """Why `target` cannot be hooked, in one line; None: it can."""
    try:
        function = pkgutil.resolve_name(target.name)
    except (ImportError, AttributeError, ValueError):
        return f"this SGLang has no {target.name}: the timer for {target.timer} is off"
    try:
        parameters = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return f"{target.name} is not a function any more: the timer for {target.timer} is off"
    missing = [name for name in target.parameters if name not in parameters]
    if missing:
        return f"{target.name} has lost its parameter {', '.join(missing)}: the timer for {target.timer} is off"
    return None


def _name() -> EngineName | None:
    """Who this scheduler is; None: another rank of the same replica speaks for it."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    if parallel.pp_rank != 0 or parallel.attn_tp_rank != 0 or parallel.attn_cp_rank != 0:
        return None
    return EngineName("sglang", importlib.metadata.version("sglang"), parallel.dp_rank or 0)
