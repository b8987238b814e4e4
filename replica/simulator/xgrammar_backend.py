"""Grammars by `xgrammar`, driven as SGLang 0.5.23 does it (`constrained/xgrammar_backend.py`). Optional.

Its compiler runs eight native threads per grammar, and some of its masks cost tens of milliseconds: the other half of
what the simulator is there to show.
"""

import json

import numpy as np
import xgrammar

from replica.simulator.grammar import Grammar, GrammarError, GrammarSpec
from replica.simulator.mask import Mask
from replica.simulator.vocabulary import Vocabulary


class XgrammarGrammar:
    """A sequence's `GrammarMatcher`."""

    __slots__ = ("_compiled", "_matcher")

    def __init__(self, compiled: xgrammar.CompiledGrammar) -> None:
        self._compiled = compiled
        self._matcher = xgrammar.GrammarMatcher(compiled)

    def copy(self) -> "XgrammarGrammar":
        return XgrammarGrammar(self._compiled)

    def fill(self, mask: Mask) -> None:
        mask.words.fill(0xFFFFFFFF)
        try:
            self._matcher.fill_next_token_bitmask(mask.words.view(np.int32).reshape(1, -1))
        except RuntimeError as error:
            raise GrammarError(str(error)) from error

    def accept(self, token: int) -> bool:
        if not self._matcher.accept_token(token):
            raise GrammarError(f"token {token} is not allowed here")
        return bool(self._matcher.is_terminated())


class XgrammarBackend:
    """`xgrammar` over the whole vocabulary."""

    def __init__(self, vocabulary: Vocabulary, *, any_whitespace: bool) -> None:
        information = xgrammar.TokenizerInfo(
            vocabulary.token_bytes, vocab_size=vocabulary.size, stop_token_ids=[vocabulary.eos]
        )
        # The compiler's own cache would make the second compile of a grammar free even where ours has dropped it.
        self._compiler = xgrammar.GrammarCompiler(information, cache_enabled=False)
        self._any_whitespace = any_whitespace

    def compile(self, spec: GrammarSpec) -> Grammar:
        try:
            return XgrammarGrammar(self._compile(spec))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise GrammarError(str(error)) from error

    def _compile(self, spec: GrammarSpec) -> xgrammar.CompiledGrammar:
        match spec.kind:
            case "json":
                return self._compiler.compile_json_schema(spec.source, any_whitespace=self._any_whitespace)
            case "regex":
                return self._compiler.compile_regex(spec.source)
            case "ebnf":
                return self._compiler.compile_grammar(spec.source)
            case "structural_tag":
                return self._compiler.compile_structural_tag(_structural_tag(spec.source))


def _structural_tag(source: str) -> xgrammar.StructuralTag:
    """SGLang's legacy structural tag as xgrammar's own."""
    tag = json.loads(source)
    items = [
        xgrammar.StructuralTagItem(begin=s["begin"], schema=json.dumps(s.get("schema") or {}), end=s["end"])
        for s in tag["structures"]
    ]
    return xgrammar.StructuralTag.from_legacy_structural_tag(items, tag["triggers"])
