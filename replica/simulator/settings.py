"""Everything that can be chosen about one simulated replica. Owns no behaviour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForwardModel:
    """Duration of a forward pass: `base_us + per_seq_us * sequences + per_token_us * prompt tokens` (microseconds)."""

    base_us: float = 6000.0
    per_seq_us: float = 25.0
    per_token_us: float = 15.0


@dataclass(frozen=True, slots=True)
class Settings:
    """One replica, as its flags describe it. The defaults are those of `python -m replica.simulator`."""

    name: str = "simulator"
    model_name: str = "steplane-simulator"
    seed: int = 0
    forward: ForwardModel = ForwardModel()
    feed: str = "off"
    """Where the step feed listens: `HOST:PORT`, `auto` (1000 above the replica's own port) or `off`."""
    grammar_backend: str = "llguidance"
    any_whitespace: bool = False
    """JSON grammars admit free whitespace between tokens (SGLang's default; off here: weak models loop on it)."""
    grammar_poll_s: float = 0.005
    """Longest wait for grammars inside one step (`SGLANG_GRAMMAR_POLL_INTERVAL`)."""
    grammar_max_polls: int = 10_000
    """Steps after which a grammar that is still compiling fails (`SGLANG_GRAMMAR_MAX_POLL_ITERATIONS`)."""
    grammar_cache: int = 256
    """Compiled grammars kept, least recently used out first (SGLang's cache has no bound)."""
    grammar_workers: int = 0
    """Compile threads; 0: processors + 4, as SGLang's executor."""
    max_running_requests: int = 64
    max_queued_requests: int | None = None
    context_length: int = 32768
    max_total_tokens: int = 1_000_000
    """Size of the imagined KV cache: the base of `token_usage`. Nothing is ever refused for it."""
    chunked_prefill_size: int = 4096
    """Most prompt tokens in one forward pass."""
    reply_tokens: tuple[int, int] = (96, 384)
    """Bounds of the length at which an unconstrained reply ends by itself."""
