"""The way in: a request's path and body to its classification.

Hot path: a plain chat request is classified in about 5 µs, parsing included, because nothing is built for it but its
`Features`; a grammar seen before costs one `orjson.dumps` and one dict lookup. Owns the caches, which hold no prompt.
"""

from dataclasses import replace

from gateway.hookcost.body import parse
from gateway.hookcost.classification import Classification, Refusal
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.cost import FREE, HookCost
from gateway.hookcost.features import Api, Features
from gateway.hookcost.grammarcost import GrammarCost, canonical, price
from gateway.hookcost.paths import api_of
from gateway.hookcost.reading import Reading, read_body
from gateway.hookcost.sampling import SAMPLING_KEYS
from gateway.hookcost.signature import bucket, digest
from gateway.hookcost.values import MalformedError

_LIMITS = frozenset(("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens"))
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
    "max_new_tokens",
    "max_output_tokens",
}
"""A chat body without any of these is plain: it asks for nothing but text."""

_CACHE_BYTES = 32 * 1024 * 1024
_CACHED_SHAPES = 4096
_MODEL_CHARS = 128
"""Longer model names share one shape: the name is the client's, and the cache keeps it."""


class Classifier:
    """Classifies requests and remembers the grammars it has priced, within bounds."""

    __slots__ = ("_grammar_bytes", "_grammars", "_shapes")

    def __init__(self) -> None:
        self._grammars: dict[bytes, GrammarCost] = {}
        self._grammar_bytes = 0
        self._shapes: dict[object, str] = {}

    def classify(self, path: str, body: bytes) -> Classification:
        """Features, predicted cost and signatures of one request; never raises."""
        api = api_of(path)
        if api is Api.other:
            return Classification(Features(body_bytes=len(body)), FREE, self._shape(("other", None)))
        data = parse(body)
        if isinstance(data, Refusal):
            return self._refused(api, len(body), data)
        if api is Api.chat and _SPECIAL.isdisjoint(data):
            features = _plain(data, len(body))
            if features is not None:
                shape = self._shapes.get(features.model)
                return Classification(features, FREE, shape or self._plain_shape(features.model))
        try:
            reading = read_body(api, data, len(body))
        except MalformedError as error:
            refusal = Refusal(400, "invalid_value", error.message, error.param)
            return self._refused(api, len(body), refusal)
        return self._predicted(reading)

    def _refused(self, api: Api, body_bytes: int, refusal: Refusal) -> Classification:
        features = Features(api=api, body_bytes=body_bytes)
        return Classification(features, FREE, self._shape(("refused", refusal.code)), refusal=refusal)

    def _predicted(self, reading: Reading) -> Classification:
        grammars = [self._grammar(constraint) for constraint in reading.constraints]
        features = reading.features
        if grammars:
            features = replace(features, grammar_bytes=sum(grammar.size_bytes for grammar in grammars))
        key = grammars[0].key if len(grammars) == 1 else ""
        if len(grammars) > 1:
            key = digest("g1", "+".join(grammar.key for grammar in grammars).encode())
        shape = self._shape((_shape_of(features), *(grammar.shape for grammar in grammars)))
        return Classification(features, _cost_of(features, grammars), shape, key)

    def _grammar(self, constraint: Constraint) -> GrammarCost:
        text = canonical(constraint)
        known = self._grammars.get(text)
        if known is None:
            known = price(constraint, text)
            if self._grammar_bytes + len(text) > _CACHE_BYTES:
                self._grammars.clear()
                self._grammar_bytes = 0
            self._grammars[text] = known
            self._grammar_bytes += len(text)
        return known

    def _plain_shape(self, model: str | None) -> str:
        shape = self._shape(((_named(model), *_PLAIN_SHAPE),))
        if model is None or len(model) <= _MODEL_CHARS:
            self._shapes[model] = shape
        return shape

    def _shape(self, parts: tuple[object, ...]) -> str:
        known = self._shapes.get(parts)
        if known is None:
            if len(self._shapes) >= _CACHED_SHAPES:
                self._shapes.clear()
            known = self._shapes[parts] = digest("s1", repr(parts).encode("utf-8", "surrogatepass"))
        return known


def _plain(body: dict[str, object], body_bytes: int) -> Features | None:
    """The features of a chat body without special fields, or None where a value is odd enough for the full reading."""
    model, stream = body.get("model"), body.get("stream", False)
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    messages = body.get("messages")
    if (
        not (model is None or type(model) is str)
        or not (stream is False or stream is True)
        or not (limit is None or type(limit) is int)
        or type(messages) is not list
        or ("max_tokens" in body and "max_completion_tokens" in body)
    ):
        return None
    prompt_bytes = 0
    for message in messages:
        if type(message) is not dict or "tools" in message:
            return None
        content = message.get("content")
        if type(content) is not str or not content.isascii():
            return None
        prompt_bytes += len(content)
    return Features(Api.chat, model, stream, max_tokens=limit, prompt_bytes=prompt_bytes, body_bytes=body_bytes)


def _named(model: str | None) -> str | None:
    return model if model is None else model[:_MODEL_CHARS]


def _shape_of(features: Features) -> tuple[object, ...]:
    """What makes requests cost alike apart from their grammars; sizes in buckets."""
    return (
        _named(features.model),
        features.grammar.value,
        bucket(features.tools),
        features.logprobs,
        bucket(features.top_logprobs),
        bucket(features.prompt_logprobs + 1),
        bucket(features.stop),
        bucket(features.stop_bytes),
        features.stop_regex,
        bucket(features.logit_bias),
        features.penalties,
        features.custom_logit_processor,
        features.return_hidden_states,
        bucket(features.n),
    )


_PLAIN_SHAPE = _shape_of(Features())[1:]


def _cost_of(features: Features, grammars: list[GrammarCost]) -> HookCost:
    """Per-step prices of the measured kind, each times the sequences that the engine runs."""
    n = max(1, features.n)
    by_hook: dict[str, float] = {}
    if grammars:
        by_hook["grammar"] = n * sum(grammar.step_us for grammar in grammars)
    if features.logprobs:
        by_hook["logprobs"] = n * 0.35 * (features.top_logprobs + 1)
    if features.prompt_logprobs >= 0:
        tokens = features.prompt_bytes / 4
        by_hook["prefill"] = features.batch * tokens * (0.5 + 0.11 * features.prompt_logprobs)
    if features.stop or features.stop_regex:
        by_hook["stop"] = n * (1.2 * features.stop + 0.003 * features.stop_bytes + 200.0 * features.stop_regex)
    sampling = 5.0 * features.penalties + 0.5 * features.logit_bias + 15_000.0 * features.custom_logit_processor
    if sampling:
        by_hook["sampling"] = n * sampling
    return HookCost(
        compile_ms=sum(grammar.compile_ms for grammar in grammars),
        step_us=sum(by_hook.values()),
        by_hook=by_hook,
        heavy=next((grammar.heavy for grammar in grammars if grammar.heavy), None),
    )


_CLASSIFIER = Classifier()


def classify(path: str, body: bytes) -> Classification:
    """`Classifier.classify` of one classifier shared by the process."""
    return _CLASSIFIER.classify(path, body)
