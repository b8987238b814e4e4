"""What a step cost, by hook kind and by request: the place where a recorder attaches.

The engine fills one `StepRecord` a step on the step thread and hands it to its observers there, at the end of the step.
An observer must return in microseconds; it must not block or raise.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class Hook(StrEnum):
    """Kinds of CPU work for one sequence on the step thread."""

    grammar_fill = "grammar_fill"
    grammar_accept = "grammar_accept"
    logprobs = "logprobs"
    prompt_logprobs = "prompt_logprobs"
    stop = "stop"


class HookTime(NamedTuple):
    """One hook of one sequence in one step."""

    rid: str
    hook: Hook
    us: float


@dataclass(slots=True)
class StepRecord:
    """One iteration of the engine loop. Times in microseconds unless the name says otherwise.

    index:         steps since the engine started.
    started_s:     `time.perf_counter()` at the start of the step.
    sequences:     sequences in the forward pass; `prompt_tokens` of them were prefilled in it.
    poll_us:       waiting for grammars to compile, inside the step.
    forward_us:    the simulated GPU.
    sampling_us:   choosing tokens; stands for GPU work, so it is no hook.
    hooks_us:      everything between the forward pass and the next one, `sampling_us` excluded: the sum of `hooks`
                   and the loop's own bookkeeping.
    hooks:         the timed parts. A plain sequence has none.
    """

    index: int
    started_s: float
    sequences: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    poll_us: float = 0.0
    forward_us: float = 0.0
    sampling_us: float = 0.0
    hooks_us: float = 0.0
    hooks: list[HookTime] = field(default_factory=list)


class StepObserver(Protocol):
    """Receives every step on the step thread."""

    def __call__(self, record: StepRecord, /) -> None: ...
