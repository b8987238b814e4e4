"""The outcome of looking at one request: what routing and the breaker work on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gateway.hookcost.cost import HookCost
from gateway.hookcost.features import Features

_NO_BACKENDS: Mapping[str, HookCost] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A body that must not reach an engine. `message` says what was wrong and where; `param` is the offending field."""

    status: int
    code: str
    message: str
    param: str | None = None


@dataclass(slots=True)
class Classification:
    """Features, predicted cost and the two signatures of one request. Not to be changed; not frozen, because it is hot.

    signature:   the cost shape, `s1-` and 16 hex digits; equal for requests that cost alike, never a hash of the
                 prompt.
    grammar_key: what the engine's grammar cache would hold as one grammar, `g1-` and 16 hex digits, or "" without one.
    by_backend:  `cost` as it would be on each grammar backend that is priced; empty where no grammar makes them differ.
    refusal:     set when the body must be answered with an error instead of being routed.
    """

    features: Features
    cost: HookCost
    signature: str
    grammar_key: str = ""
    by_backend: Mapping[str, HookCost] = field(default_factory=lambda: _NO_BACKENDS)
    refusal: Refusal | None = None
