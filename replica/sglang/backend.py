"""Grammar backends for SGLang that compile off the step thread: `--grammar-backend steplane-xgrammar`.

Registered through SGLang's own registry, on top of its own xgrammar and llguidance backends: what they make of a
grammar, and every object they hand out, stays theirs. Ours decide where and for how long it is compiled:

    few threads, which give way to the step thread
    a grammar that looks dear, or has been too slow before, is tried in a child that can be killed
    one that is too slow is refused for a while, not cached as invalid for ever
    the cache is bounded, and what leaves it is freed away from the step
    code that is compiled just in time is run once at the start
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

from replica.grammar.cache import GrammarCache
from replica.grammar.pool import WAITING_THREADS, NiceCompiler, compile_pool
from replica.grammar.price import compile_price_ms
from replica.grammar.refusals import Refusals
from replica.grammar.trial import Trial, TrialSetup
from replica.settings import ReplicaSettings

log = logging.getLogger("steplane")

XGRAMMAR, LLGUIDANCE = "steplane-xgrammar", "steplane-llguidance"
# Grammars that look dearer are tried first. Trying doubles the work, so this is far above what is usual.
_TRY_OVER_MS = 4_000.0
_MATCHER_BYTES = 65_536
# Kept on a compiled grammar: its size.
_BYTES = "_steplane_bytes"
# To the compiled part of a grammar that is only in our hands: the grammar's own, a local variable, an argument.
_OUR_REFERENCES = 3
_MIB = 1 << 20
# Compiled and run once before the first request: every kind of node that has code of its own.
_WARM_UP_SCHEMA = (
    '{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}},'
    '"c":{"enum":["x","y"]},"d":{"type":"number"},"e":{"type":"string","maxLength":9},"f":{"type":"boolean"}},'
    '"required":["a","b","c","d","e","f"],"additionalProperties":false}'
)


def offer() -> None:
    """Let the launcher accept our names."""
    from sglang.srt.server_args import add_grammar_backend_choices

    add_grammar_backend_choices([XGRAMMAR, LLGUIDANCE])


def register(settings: ReplicaSettings) -> None:
    """Let the scheduler build our backends."""
    from sglang.srt.constrained.base_grammar_backend import register_grammar_backend

    register_grammar_backend(XGRAMMAR, _factory(_xgrammar, settings))
    register_grammar_backend(LLGUIDANCE, _factory(_llguidance, settings))


def _factory(build: Callable[..., Any], settings: ReplicaSettings) -> Callable[..., Any]:
    def make(_server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Any = None) -> Any:
        backend = build(settings, tokenizer, vocab_size, eos_token_ids)
        backend.warm_up(vocab_size)
        return _with_reasoning(backend, tokenizer)

    return make


def _with_reasoning(backend: Any, tokenizer: Any) -> Any:
    """Wrap a backend for reasoning models as SGLang wraps its own; it does not do so for registered ones."""
    from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarBackend
    from sglang.srt.parser.reasoning_parser import ReasoningParser
    from sglang.srt.runtime_context import get_serving

    serving = get_serving()
    if not serving.reasoning_parser:
        return backend
    parser = ReasoningParser(model_type=serving.reasoning_parser, stream_reasoning=False, tokenizer=tokenizer)
    if not parser.detector.get_think_end_token_ids(tokenizer):
        return backend
    reasoner = ReasonerGrammarBackend(backend, parser, tokenizer, enable_strict_thinking=serving.enable_strict_thinking)
    # Its compiles and its cache are the ones that count: they hold ours.
    reasoner.executor.shutdown(wait=False)
    reasoner.executor = backend.executor
    reasoner.cache = backend.cache
    return reasoner


class OffThread:
    """Mixed in before one of SGLang's backends: where, when and how long it compiles."""

    executor: Any
    cache: Any

    def take_over(
        self,
        settings: ReplicaSettings,
        setup: TrialSetup,
        size_of: Callable[[Any], int],
        in_use: Callable[[Any], bool],
        threads: int,
    ) -> None:
        """Replace the executor and the cache that SGLang's constructor made; see `GrammarCache` for the functions."""
        self.executor.shutdown(wait=False)
        self.executor = compile_pool(threads)
        self._size_of = size_of
        # xgrammar has a cache of its own, from which it frees without holding the GIL. It is to be the last to hold a
        # grammar, so ours is smaller.
        self.cache = GrammarCache(settings.grammar_cache_mib * _MIB // 2, size_of, in_use)
        self._limit_ms = settings.limits.compile_ms
        self._refusals = Refusals()
        # Keys whose compile runs now.
        self._begun: set[tuple[str, str]] = set()
        self._trial = Trial(setup) if settings.trial and self._limit_ms > 0 else None
        if self._trial is not None:
            self._trial.warm_up()

    def get_cached_or_future_value(self, key: tuple[str, str], require_reasoning: bool) -> tuple[Any, bool]:
        """A compiled grammar, a refusal, or the promise of one; without a compile that is known to take too long."""
        reason = self._refusals.reason(key)
        if reason is not None:
            return _invalid(reason), True
        found: tuple[Any, bool] = super().get_cached_or_future_value(key, require_reasoning)  # type: ignore[misc]
        return found

    def set_cache(self, key: tuple[str, str], value: Any) -> None:
        """Keep a compiled grammar. One that timed out is refused for a while, unless it was only waiting its turn."""
        message = getattr(value, "error_message", None) or ""
        timed_out = "timed out" in message
        if message.startswith("step_budget_exceeded") or (timed_out and key in self._begun):
            self.too_slow(key)
        elif not timed_out:
            super().set_cache(key, value)  # type: ignore[misc]

    def too_slow(self, key: tuple[str, str]) -> None:
        """`key` was not compiled in time."""
        self._refusals.refuse(
            key, f"step_budget_exceeded: this grammar took over {self._limit_ms:g} ms to compile a short while ago"
        )

    def _init_value_dispatch(self, key: tuple[str, str], require_reasoning: bool) -> Any:
        """In a compile thread: try what looks dear in the child, then compile, and do what can be done ahead."""
        self.cache.let_go()
        self._begun.add(key)
        try:
            return self._try_and_compile(key, require_reasoning)
        finally:
            self._begun.discard(key)

    def _try_and_compile(self, key: tuple[str, str], require_reasoning: bool) -> Any:
        if self._trial is not None and self._is_suspect(key):
            kind, text = key
            if not self._trial.ends_within(kind, text, self._limit_ms / 1e3):
                self.too_slow(key)
                return _invalid(f"step_budget_exceeded: its grammar was not compiled within {self._limit_ms:g} ms")
            self._refusals.forgive(key)
        grammar = super()._init_value_dispatch(key, require_reasoning)  # type: ignore[misc]
        # The first of each is dear, and the step thread would be the first.
        self._size_of(grammar)
        grammar.copy()
        return grammar

    def _is_suspect(self, key: tuple[str, str]) -> bool:
        return self._refusals.offended_before(key) or compile_price_ms(*key) > _TRY_OVER_MS

    def warm_up(self, vocab_size: int) -> None:
        """Run once what would otherwise be loaded or compiled in the step of the first request with a grammar."""
        import torch
        from sglang.srt.runtime_context import get_device

        try:
            grammar = super()._init_value_dispatch(("json", _WARM_UP_SCHEMA), False)  # type: ignore[misc]
            copy = grammar.copy()
            device = getattr(get_device(), "device", "cpu")
            mask = copy.allocate_vocab_mask(vocab_size=vocab_size, batch_size=1, device=device)
            copy.fill_vocab_mask(mask, 0)
            logits = torch.zeros((1, vocab_size), dtype=torch.float32, device=device)
            copy.apply_vocab_mask(logits=logits, vocab_mask=copy.move_vocab_mask(mask, device))
        except Exception as error:
            # The first request pays then, as it does without us.
            log.warning("steplane: the grammar backend could not be warmed up: %s", error)

    def reset(self) -> None:
        """Forget all grammars and refusals."""
        super().reset()  # type: ignore[misc]
        self._refusals.clear()
        self.executor.submit(self.cache.let_go)


def _invalid(message: str) -> Any:
    from sglang.srt.constrained.base_grammar_backend import InvalidGrammarObject

    return InvalidGrammarObject(message)


def _xgrammar(settings: ReplicaSettings, tokenizer: Any, vocab_size: int, eos_token_ids: Any) -> Any:
    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammarBackend
    from sglang.srt.runtime_context import get_serving
    from xgrammar import GrammarCompiler

    class SteplaneXGrammar(OffThread, XGrammarGrammarBackend):  # type: ignore[misc]
        pass

    serving = get_serving()
    whitespace = not serving.constrained_json_disable_any_whitespace
    backend = SteplaneXGrammar(
        tokenizer,
        vocab_size=vocab_size,
        model_eos_token_ids=list(eos_token_ids) if eos_token_ids else None,
        any_whitespace=whitespace,
        max_whitespace_cnt=serving.constrained_json_max_whitespace_cnt,
    )
    info = backend._tokenizer_info
    # Its cache shares parts between grammars: a schema never seen compiles ten to a hundred times faster with it.
    compiler = GrammarCompiler(
        info, max_threads=1, cache_enabled=True, cache_limit_bytes=settings.grammar_cache_mib * _MIB
    )
    backend.grammar_compiler = NiceCompiler(compiler, settings.compile_threads, settings.give_up_s)
    options = {"any_whitespace": whitespace, "max_whitespace_cnt": serving.constrained_json_max_whitespace_cnt}
    setup = TrialSetup("xgrammar", info.serialize_json(), options)
    threads = settings.compile_threads + WAITING_THREADS
    backend.take_over(settings, setup, _xgrammar_bytes, _xgrammar_in_use, threads)
    return backend


def _compiled(grammar: Any) -> Any:
    """What all copies of a grammar share; None: it is no grammar of xgrammar's."""
    inner = getattr(grammar, "grammar", None) or grammar
    return getattr(inner, "ctx", None)


def _xgrammar_bytes(grammar: Any) -> int:
    compiled = _compiled(grammar)
    if compiled is None:
        return _MATCHER_BYTES
    known = getattr(compiled, _BYTES, None)
    if known is None:
        # Counting them takes 2 ms for a large grammar.
        known = _MATCHER_BYTES + int(compiled.memory_size_bytes)
        setattr(compiled, _BYTES, known)
    return int(known)


def _xgrammar_in_use(grammar: Any) -> bool:
    compiled = _compiled(grammar)
    return compiled is not None and sys.getrefcount(compiled) > _OUR_REFERENCES


def _llguidance(settings: ReplicaSettings, tokenizer: Any, vocab_size: int, eos_token_ids: Any) -> Any:
    from sglang.srt.constrained.llguidance_backend import GuidanceBackend
    from sglang.srt.runtime_context import get_serving

    class SteplaneLlguidance(OffThread, GuidanceBackend):  # type: ignore[misc]
        pass

    serving = get_serving()
    whitespace = not serving.constrained_json_disable_any_whitespace
    backend = SteplaneLlguidance(
        tokenizer=tokenizer,
        any_whitespace=whitespace,
        whitespace_pattern=serving.constrained_json_whitespace_pattern,
        n_vocab=vocab_size,
        eos_token_ids=eos_token_ids,
    )
    eos = None if eos_token_ids is None else sorted(eos_token_ids)
    options = {
        "vocabulary": {"n_vocab": vocab_size, "eos_token": eos or tokenizer.eos_token_id},
        "json": {
            "whitespace_flexible": whitespace,
            "whitespace_pattern": serving.constrained_json_whitespace_pattern,
        },
    }
    backend.take_over(
        settings,
        TrialSetup("llguidance", tokenizer.backend_tokenizer.to_str(), options),
        lambda grammar: _MATCHER_BYTES + 4 * len(getattr(grammar, "serialized_grammar", "") or ""),
        # Every copy is whole.
        lambda _grammar: False,
        settings.compile_threads,
    )
    return backend
