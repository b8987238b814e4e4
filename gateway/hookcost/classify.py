"""The way in: a request's path and body to its classification.

Hot path: a plain chat request is classified in about 5 µs, parsing included, because nothing is built for it but its
`Features`; a grammar seen before costs one `orjson.dumps` and one dict lookup. Owns the caches, which hold no prompt.
"""

from collections.abc import Generator
from dataclasses import replace

from gateway.hookcost.body import parse
from gateway.hookcost.cache import TextCache
from gateway.hookcost.classification import Classification, Refusal
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.cost import FREE, HookCost
from gateway.hookcost.features import Api, Features
from gateway.hookcost.grammarcost import GrammarCost, GrammarPricer, canonical
from gateway.hookcost.hooks import front_end_us, hook_charges
from gateway.hookcost.paths import api_of
from gateway.hookcost.policy import Policy
from gateway.hookcost.prices import CostModel
from gateway.hookcost.reading import Reading, read_body
from gateway.hookcost.refusal import heavy_by_limit, refusal_of
from gateway.hookcost.sampling import SAMPLING_KEYS
from gateway.hookcost.signature import bucket, digest
from gateway.hookcost.skim import Skimmed, skim
from gateway.hookcost.values import MalformedError

INLINE_BYTES = 32 * 1024
"""A body up to this size is classified within 2 ms whatever is in it; larger ones are for `Classifier.classify_in_turns`."""

_SLICE_NODES = 400
"""Nodes of a schema between two turns of the event loop: about a millisecond."""
_ALL_NODES = 1 << 30
_LIMITS = frozenset(("max_tokens", "max_completion_tokens"))
_SPECIAL = (SAMPLING_KEYS - _LIMITS) | {
    "extra_body",
    "sampling_params",
    "instances",
    "tools",
    "tool_choice",
    "text",
    "include",
    "output_config",
    "system",
    "rid",
}
"""A chat body without any of these is plain: it asks for nothing but text."""

_CACHE_BYTES = 32 * 1024 * 1024
_CACHED_SHAPES = 4096
_MODEL_CHARS = 128
"""Longer model names share one shape: the name is the client's, and the cache keeps it."""


class Classifier:
    """Classifies requests and remembers the grammars it has priced, within bounds.

    model:    the price list (`prices.cost_model_from`).
    policy:   what is refused.
    backends: the grammar backends to price, with their versions; the first one's prices are `Classification.cost`. All of
              the model's, in its order, where none is named.
    """

    __slots__ = ("_backends", "_grammars", "_hooks", "_policy", "_pricer", "_shapes", "model")

    def __init__(
        self, model: CostModel, policy: Policy | None = None, backends: tuple[tuple[str, str | None], ...] = ()
    ) -> None:
        self.model = model
        self._policy = policy or Policy()
        named = backends or tuple((name, None) for name in model.backends)
        self._backends = tuple(model.backend(name, version) for name, version in named)
        self._pricer = GrammarPricer(self._backends, model.vocabulary, self._policy)
        self._hooks = model.hooks
        self._grammars: TextCache[GrammarCost] = TextCache(_CACHE_BYTES)
        self._shapes: dict[object, str] = {}
