"""The outcome of looking at one request: what routing and the breaker work on."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from gateway.hookcost.cost import HookCost
from gateway.hookcost.features import Features

_NO_BACKENDS: Final[Mapping[str, HookCost]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A body that must not reach an engine. `message` says what was wrong and where; `param` is the offending field."""

    status: int
    code: str
    message: str
    param: str | None = None


@dataclass(init=False)
class Classification:
    """Features, predicted cost and the two signatures of one request. Not to be changed.

    signature:   the cost shape, `s1-` and 16 hex digits; equal for requests that cost alike, never a hash of the
                 prompt.
    grammar_key: what the engine's grammar cache would hold as one grammar, `g1-` and 16 hex digits, or "" without one.
    by_backend:  `cost` as it would be on each grammar backend that is priced; empty where no grammar makes them differ.
    refusal:     set when the body must be answered with an error instead of being routed.
    predicted:   the cost before what was observed was counted in; None where `cost` is that.

    Made for every request; see `Features`.
    """

    features: Features
    cost: HookCost
    signature: str
    grammar_key: str
    by_backend: Mapping[str, HookCost]
    refusal: Refusal | None
    predicted: HookCost | None

    def __init__(
        self,
        features: Features,
        cost: HookCost,
        signature: str,
        grammar_key: str = "",
        by_backend: Mapping[str, HookCost] = _NO_BACKENDS,
        refusal: Refusal | None = None,
        predicted: HookCost | None = None,
    ) -> None:
        self.features = features
        self.cost = cost
        self.signature = signature
        self.grammar_key = grammar_key
        self.by_backend = by_backend
        self.refusal = refusal
        self.predicted = predicted

    def sized(self, prompt_bytes: int, body_bytes: int) -> "Classification":
        """The classification of the same request with another prompt, on which its cost does not depend."""
        features = self.features.sized(prompt_bytes, body_bytes)
        return Classification(features, self.cost, self.signature, self.grammar_key, self.by_backend)

    def priced(self, cost: HookCost) -> "Classification":
        """The same with another cost: what was observed counts, too."""
        return Classification(
            self.features, cost, self.signature, self.grammar_key, self.by_backend, self.refusal, self.cost
        )
