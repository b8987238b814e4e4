"""Grammars: what constrains a reply, and the engine that computes token masks for it.

The default engine is `llguidance`, driven as SGLang 0.5.23 does it (`constrained/llguidance_backend.py`).
Knows no scheduling: compiling off the step thread and caching are `compile.py`'s.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from llguidance import LLMatcher, StructTag, grammar_from

from replica.simulator.mask import Mask
from replica.simulator.vocabulary import Vocabulary

GrammarKind = Literal["json", "regex", "ebnf", "structural_tag"]


class GrammarError(Exception):
    """The grammar does not compile, or its engine gave up on it in mid-generation. The text is the engine's."""


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as the client spelled it; equal specs share one compiled grammar. Kinds are named as in SGLang."""

    kind: GrammarKind
    source: str


class Grammar(Protocol):
    """One sequence's position in a compiled grammar. Used by one thread at a time."""

    def copy(self) -> "Grammar":
        """A fresh grammar at the start position; for templates in the cache only."""
        ...

    def fill(self, mask: Mask) -> None:
        """Write which tokens may come next. Raises GrammarError."""
        ...

    def accept(self, token: int) -> bool:
        """Advance over a token; True if nothing may follow it. Raises GrammarError."""
        ...


class GrammarBackend(Protocol):
    """Compiles grammars; called from many threads."""

    def compile(self, spec: GrammarSpec) -> Grammar:
        """Raises GrammarError."""
        ...


class LlguidanceGrammar:
    """A sequence's `LLMatcher`. Mask fill and advance release the GIL."""

    __slots__ = ("_eos", "_matcher")

    def __init__(self, matcher: LLMatcher, eos: int) -> None:
        self._matcher = matcher
        self._eos = eos
        self._check()

    def copy(self) -> "LlguidanceGrammar":
        return LlguidanceGrammar(self._matcher.deep_copy(), self._eos)

    def fill(self, mask: Mask) -> None:
        self._matcher.unsafe_compute_mask_ptr(mask.address, mask.size_bytes)
        self._check()

    def accept(self, token: int) -> bool:
        matcher = self._matcher
        if token == self._eos and matcher.is_stopped():
            return True
        if not matcher.consume_token(token):
            self._check()
            raise GrammarError(f"token {token} is not allowed here")
        return False

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())


class LlguidanceBackend:
    """`llguidance` over the whole vocabulary. Building it takes about a second."""

    def __init__(self, vocabulary: Vocabulary, *, any_whitespace: bool) -> None:
        self._tokenizer = vocabulary.lltokenizer()
        self._eos = vocabulary.eos
        self._any_whitespace = any_whitespace

    def compile(self, spec: GrammarSpec) -> Grammar:
        try:
            serialized = self._serialize(spec)
        except GrammarError:
            raise
        except Exception as error:  # llguidance and its GBNF converter raise bare Exception, too
            raise GrammarError(str(error)) from error
        return LlguidanceGrammar(LLMatcher(self._tokenizer, serialized, log_level=0), self._eos)

    def _serialize(self, spec: GrammarSpec) -> str:
        match spec.kind:
            case "json":
                return LLMatcher.grammar_from_json_schema(
                    spec.source, defaults={"whitespace_flexible": self._any_whitespace, "whitespace_pattern": None}
                )
            case "regex" | "ebnf":
                return grammar_from(spec.kind, spec.source)
            case "structural_tag":
                return StructTag.to_grammar(_structural_tags(json.loads(spec.source)))


def _structural_tags(tag: dict[str, Any]) -> list[StructTag]:
    """SGLang's legacy structural tag: `structures` of begin, schema and end, and `triggers` that prefix a begin."""
    triggers: list[str] = tag["triggers"]
    if not triggers:
        raise GrammarError("structural_tag needs at least one trigger")
    return [
        StructTag(
            begin=structure["begin"],
            grammar=structure.get("schema") or {},
            end=structure["end"],
            trigger=next((t for t in triggers if structure["begin"].startswith(t)), triggers[0]),
        )
        for structure in tag["structures"]
    ]


def grammar_backend(name: str, vocabulary: Vocabulary, *, any_whitespace: bool) -> GrammarBackend:
    """The backend by its name. Raises ImportError where its package is missing, ValueError for an unknown name."""
    if name == "llguidance":
        return LlguidanceBackend(vocabulary, any_whitespace=any_whitespace)
    if name == "xgrammar":
        from replica.simulator.xgrammar_backend import XgrammarBackend

        return XgrammarBackend(vocabulary, any_whitespace=any_whitespace)
    raise ValueError(f"unknown grammar backend {name!r}: expected llguidance or xgrammar")
