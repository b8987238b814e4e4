"""The unit of account: what one request adds to compile time and to each engine step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NO_HOOKS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HookCost:
    """Hook cost of one request, predicted or observed.

    compile_ms: CPU milliseconds once, before the first token.
    step_us:    CPU microseconds on the step thread in each step, all hooks and all sequences of the request together.
    by_hook:    `step_us` split by hook kind (`grammar`, `logprobs`, `stop`, `sampling`, `prefill`).
    heavy:      why the request is heavy by definition (a bound of the analysis was exceeded), else None.
    refused:    why the grammar backend will not compile the request's grammar, else None.
    front_end_us: CPU microseconds per token that the engine's API server spends, off the step thread.
    """

    compile_ms: float = 0.0
    step_us: float = 0.0
    by_hook: Mapping[str, float] = field(default_factory=lambda: _NO_HOOKS)
    heavy: str | None = None
    refused: str | None = None
    front_end_us: float = 0.0

    @property
    def costly(self) -> bool:
        """Whether there is any work in it for the step thread."""
        return self.step_us > 0.0 or self.compile_ms > 0.0 or bool(self.heavy) or bool(self.refused)


FREE = HookCost()
