"""What one grammar costs: the part of the prediction that depends on the constraint alone, so that it can be cached."""

from dataclasses import dataclass

import orjson

from gateway.hookcost.constraint import MAX_GRAMMAR_BYTES, Constraint
from gateway.hookcost.features import Grammar
from gateway.hookcost.signature import bucket, digest

_STEP_US = {
    Grammar.json_object: 120.0,
    Grammar.json_schema: 170.0,
    Grammar.tools: 170.0,
    Grammar.structural_tag: 170.0,
    Grammar.choice: 60.0,
    Grammar.regex: 300.0,
    Grammar.ebnf: 2400.0,
}
"""Microseconds per step and sequence on llguidance 1.9: the median over real schemas, and for free-form grammars, of
which static features say little, a bad case that is common."""
_COMPILE_MS = 0.8
_COMPILE_MS_PER_KB = 0.5


@dataclass(frozen=True, slots=True)
class GrammarCost:
    """One grammar: its size as compact JSON or source text, cost per sequence, key and shape."""

    size_bytes: int
    compile_ms: float
    step_us: float
    key: str
    shape: str
    heavy: str | None = None


def canonical(constraint: Constraint) -> bytes:
    """The bytes by which a grammar is told from another: compact JSON in the client's order of keys, or the source.

    Empty where the value is nested more than 254 levels deep, which `orjson` does not write and no engine should see.
    """
    try:
        return constraint.kind.encode() + b":" + orjson.dumps(constraint.value)
    except orjson.JSONEncodeError:
        return b""


def price(constraint: Constraint, text: bytes) -> GrammarCost:
    """The cost of one grammar; `text` is its `canonical` form."""
    if not text:
        return GrammarCost(0, 0.0, 0.0, "", f"{constraint.kind}/deep", f"`{constraint.param}` is nested too deeply")
    size = len(text) - len(constraint.kind) - 1
    step_us, compile_ms = _STEP_US[constraint.kind], _COMPILE_MS + _COMPILE_MS_PER_KB * size / 1024
    heavy = None
    if size > MAX_GRAMMAR_BYTES:
        heavy = f"`{constraint.param}` is a grammar of more than {MAX_GRAMMAR_BYTES // 1024} KiB"
    return GrammarCost(
        size_bytes=size,
        compile_ms=compile_ms,
        step_us=step_us,
        key=digest("g1", text),
        shape=f"{constraint.kind}/{bucket(size)}",
        heavy=heavy,
    )
