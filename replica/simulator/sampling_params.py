"""What one sequence asks of the sampler and of the stop checks, validated in SGLang's words.

Temperature, top-p, top-k, min-p and the penalties are checked and then ignored: over pseudo-logits they mean nothing.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from replica.simulator.grammar import GrammarSpec

MAX_STOPS = 32
MAX_STOP_REGEX_BYTES = 256


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """`max_new_tokens` None: up to the context length. `seed` None: the replica's own.

    Raises:
        ValueError: on construction, for a value that SGLang's `SamplingParams.verify` or `normalize` refuses.
    """

    max_new_tokens: int | None = 128
    min_new_tokens: int = 0
    n: int = 1
    seed: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    grammar: GrammarSpec | None = None

    def __post_init__(self) -> None:
        check = _Checker(self)
        check.sampling()
        check.lengths()
        check.stops()

    def verify_vocabulary(self, size: int) -> None:
        """Raises ValueError if `logit_bias` names a token outside 0 … `size` - 1."""
        for token in self.logit_bias:
            if not 0 <= token < size:
                raise ValueError(f"logit_bias must has keys in [0, {size - 1}], got {token}.")


@dataclass(frozen=True, slots=True)
class _Checker:
    params: SamplingParams

    def sampling(self) -> None:
        p = self.params
        if not math.isfinite(p.temperature) or p.temperature < 0.0:
            raise ValueError(f"temperature must be a non-negative finite number, got {p.temperature}.")
        if not 0.0 < p.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {p.top_p}.")
        if not 0.0 <= p.min_p <= 1.0:
            raise ValueError(f"min_p must be in [0, 1], got {p.min_p}.")
        if p.top_k < 1 and p.top_k != -1:
            raise ValueError(f"top_k must be -1 (disable) or at least 1, got {p.top_k}.")
        for name, value in (
            ("frequency_penalty", p.frequency_penalty),
            ("presence_penalty", p.presence_penalty),
        ):
            if not -2.0 <= value <= 2.0:
                raise ValueError(f"{name} must be in [-2, 2], got {value}.")
        if not 0.0 < p.repetition_penalty <= 2.0:
            raise ValueError(f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {p.repetition_penalty}.")
        if p.seed is not None and not -(2**63) <= p.seed <= 2**63 - 1:
            raise ValueError(f"sampling_seed must be in [-2**63, 2**63 - 1], got {p.seed}.")
        if p.n < 1:
            raise ValueError(f"n must be at least 1, got {p.n}.")

    def lengths(self) -> None:
        p = self.params
        if p.min_new_tokens < 0:
            raise ValueError(f"min_new_tokens must be in [0, max_new_tokens], got {p.min_new_tokens}.")
        if p.max_new_tokens is None:
            return
        if p.max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must be at least 0, got {p.max_new_tokens}.")
        if p.min_new_tokens > p.max_new_tokens:
            raise ValueError(
                f"min_new_tokens must be in [0, max_new_tokens({p.max_new_tokens})], got {p.min_new_tokens}."
            )

    def stops(self) -> None:
        p = self.params
        if len(p.stop) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop strings are allowed, got {len(p.stop)}")
        if len(p.stop_regex) > MAX_STOPS:
            raise ValueError(f"at most {MAX_STOPS} stop_regex patterns are allowed, got {len(p.stop_regex)}")
        for pattern in p.stop_regex:
            size = len(pattern.encode())
            if size > MAX_STOP_REGEX_BYTES:
                raise ValueError(f"stop_regex is {size} bytes, over the {MAX_STOP_REGEX_BYTES}-byte limit")
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"stop_regex {pattern!r} is no regular expression: {error}") from error
