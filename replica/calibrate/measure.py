"""One schema on one backend: CPU time to compile, and of each mask along a path of random allowed tokens.

Owns the clock and the path; the backends are those of the simulator, driven as SGLang drives them.
"""

import json
import random
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from replica.calibrate.tokens import Tokens, longest_first
from replica.simulator.grammar import GrammarBackend, GrammarError, GrammarSpec, LlguidanceBackend
from replica.simulator.mask import Mask
from replica.simulator.vocabulary import Vocabulary

STEPS = 64
_REPEATS = 3
_LONG_MS = 2_000.0
"""A compile of more is not repeated."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one schema cost. `refused` is the backend's message where it does not compile it."""

    name: str
    schema: Any
    compile_ms: float = 0.0
    step_mean_us: float = 0.0
    step_max_us: float = 0.0
    steps: int = 0
    refused: str | None = None

    def line(self) -> str:
        """The measurement as a line of NDJSON."""
        return json.dumps(asdict(self)) + "\n"


class _LlguidanceTokens:
    """What `llguidance.TokenizerWrapper` asks of a tokenizer. It is greedy with texts, which no mask hangs on."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens.token_bytes
        self.eos_token_id = tokens.eos
        self.bos_token_id = None
        self.special_token_ids = [tokens.eos]
        self._ids = longest_first(tokens.token_bytes)

    def __call__(self, text: bytes) -> list[int]:
        found: list[int] = []
        at = 0
        while at < len(text):
            for end in range(min(len(text), at + 24), at, -1):
                token = self._ids.get(text[at:end])
                if token is not None:
                    found.append(token)
                    at = end
                    break
            else:
                at += 1
        return found


class _Source:
    """The tokens in the shape in which the simulator's backends ask for a vocabulary."""

    def __init__(self, tokens: Tokens) -> None:
        self.token_bytes = tokens.token_bytes
        self.size = tokens.size
        self.eos = tokens.eos
        self._tokens = tokens

    def lltokenizer(self) -> Any:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_LlguidanceTokens(self._tokens)))


def backend_of(name: str, tokens: Tokens) -> GrammarBackend:
    """The real backend on these tokens, one compile thread where it can be told.

    Raises:
        ImportError: its package is not installed here.
        ValueError: no backend of that name can be measured.
    """
    source = cast(Vocabulary, _Source(tokens))
    if name == "llguidance":
        return LlguidanceBackend(source, any_whitespace=True)
    if name == "xgrammar":
        from replica.simulator.xgrammar_backend import XgrammarBackend

        return XgrammarBackend(source, any_whitespace=True)
    raise ValueError(f"can't measure grammar backend {name!r}: expected llguidance or xgrammar")


def measure(backend: GrammarBackend, tokens: Tokens, name: str, schema: Any, seed: int = 1) -> Measurement:
    """Compiles the schema and walks a path of allowed tokens. All times are CPU time, the least of some repeats."""
    spec = GrammarSpec("json", json.dumps(schema))
    compile_ms, walks = float("inf"), []
    try:
        for _ in range(_REPEATS):
            start = time.process_time()
            grammar = backend.compile(spec)
            compile_ms = min(compile_ms, (time.process_time() - start) * 1e3)
            # The same path each time, on a grammar as new as the one before.
            walks.append(_walk(grammar, tokens, random.Random(seed)))
            if compile_ms > _LONG_MS:
                break
        costs = [min(step) for step in zip(*walks, strict=True)]
    except GrammarError as error:
        return Measurement(name, schema, refused=str(error)[:200])
    mean, worst = (float(np.mean(costs)), float(np.max(costs))) if costs else (0.0, 0.0)
    return Measurement(name, schema, round(compile_ms, 3), round(mean, 1), round(worst, 1), len(costs))


def _walk(grammar: Any, tokens: Tokens, dice: random.Random) -> list[float]:
    mask = Mask(tokens.size)
    costs: list[float] = []
    for _ in range(STEPS):
        start = time.thread_time()
        grammar.fill(mask)
        costs.append((time.thread_time() - start) * 1e6)
        allowed = mask.tokens()
        if not len(allowed):
            break
        # Quotes and commas keep the path going through the grammar instead of staying in the first free string.
        closing = [token for token in allowed[:2000] if tokens.token_bytes[token][:1] in (b'"', b",", b"}", b"]")]
        token = int(dice.choice(closing) if closing and dice.random() < 0.4 else allowed[dice.randrange(len(allowed))])
        if grammar.accept(token):
            break
    return costs
