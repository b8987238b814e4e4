"""One sequence in the engine: what was asked, and how far it has come. Owned by the step thread once submitted."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from replica.simulator.finish import Finish
from replica.simulator.grammar import Grammar
from replica.simulator.sampling_params import SamplingParams
from replica.simulator.stop import StopMatcher


@dataclass(frozen=True, slots=True)
class LogprobsWanted:
    """`top` alternatives a token (0: the chosen one only). `prompt_start` >= 0: the prompt's, too, from that position.

    text: detokenize them on the step thread.
    """

    top: int = 0
    prompt_start: int = -1
    text: bool = True


class Scored(NamedTuple):
    """A token with its log probability; the order is that of SGLang's triples. The first prompt token has none."""

    logprob: float | None
    token: int
    text: str | None


class TokenLogprobs(NamedTuple):
    chosen: Scored
    top: list[Scored]


@dataclass(slots=True)
class Sequence:
    """`outlet` is opaque here: whoever submitted the sequence recognises its outputs by it.

    `key` seeds the pseudo-logits, `reply_length` is where an unconstrained reply ends by itself.
    """

    rid: str
    prompt: list[int]
    params: SamplingParams
    outlet: Any
    max_new_tokens: int
    key: int = 0
    reply_length: int = 0
    logprobs: LogprobsWanted | None = None
    stop: StopMatcher | None = None
    sampler_state: Any = None
    grammar: Grammar | None = None
    prefilled: int = 0
    output: list[int] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def tokens(self) -> int:
        """KV cache entries, in tokens."""
        return self.prefilled + len(self.output)


@dataclass(frozen=True, slots=True)
class Output:
    """What one step yields for one sequence; goes to the front end.

    token:  None where the sequence ended without a new one.
    hold:   the text must wait for the next output: it ends like the beginning of a stop string.
    """

    outlet: Any
    token: int | None = None
    hold: bool = False
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish: Finish | None = None
