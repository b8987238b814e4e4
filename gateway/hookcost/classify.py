"""The way in: a request's path and body to its classification.

Hot path: a chat request that asks as another did before, whatever its messages, is classified in about 2 µs, for only
its messages are parsed and nothing is built but its `Features`. Owns the caches, which hold no prompt.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

from gateway.hookcost.body import QUICK_BYTES, parse, takes_long
from gateway.hookcost.cache import TextCache
from gateway.hookcost.classification import Classification, Refusal
from gateway.hookcost.cost import FREE, HookCost
from gateway.hookcost.features import Api, Features
from gateway.hookcost.form import Form, form_of
from gateway.hookcost.grammarcost import GrammarCost, GrammarPricer
from gateway.hookcost.hooks import front_end_us, hook_charges
from gateway.hookcost.paths import api_of
from gateway.hookcost.policy import Policy
from gateway.hookcost.prices import FALLBACK, CostModel
from gateway.hookcost.prompt import text_bytes
from gateway.hookcost.reading import Reading, read_body
from gateway.hookcost.refusal import heavy_by_limit, refusal_of
from gateway.hookcost.sampling import SAMPLING_KEYS
from gateway.hookcost.signature import bucket, digest
from gateway.hookcost.skim import Skimmed, skim
from gateway.hookcost.template import Templates
from gateway.hookcost.turns import at_once
from gateway.hookcost.values import MalformedError

_SLICE_WORK = 250
"""Units of a schema walk between two turns of the event loop: about half a millisecond."""
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
_FORM_BYTES = 16 * 1024 * 1024
_PLAIN_FORM_BYTES = 2 * 1024 * 1024
_TEMPLATE_BYTES = 4 * 1024 * 1024
_REMEMBERED_BYTES = 64 * 1024
"""Larger bodies are not worth the look-up."""
_OUTCOMES = 4
"""Combinations of other hooks that are remembered with one grammar."""
_MODEL_CHARS = 128
"""Longer model names share one shape: the name is the client's, and the cache keeps it."""


Turns = Generator[None, None, Classification]
"""A classification in the making: each `next()` is one turn."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What was predicted for one grammar with certain other hooks."""

    cost: HookCost
    signature: str
    key: str
    by_backend: dict[str, HookCost]


@dataclass(slots=True)
class _Known:
    """A grammar that has been priced, and what came of it with the hooks of some requests."""

    cost: GrammarCost
    outcomes: dict[tuple[object, ...], _Outcome] = field(default_factory=dict)


class Classifier:
    """Classifies requests and remembers the grammars it has priced, within bounds.

    model:    the price list (`prices.cost_model_from`); a coarse one by kind of grammar where none is given.
    policy:   what is refused.
    backends: the grammar backends to price, with their versions; the first one's prices are `Classification.cost`. All
              of the model's, in its order, where none is named.
    """

    __slots__ = (
        "_backends",
        "_forms",
        "_grammars",
        "_hooks",
        "_plain_forms",
        "_policy",
        "_pricer",
        "_shapes",
        "_templates",
        "model",
    )

    def __init__(
        self,
        model: CostModel | None = None,
        policy: Policy | None = None,
        backends: tuple[tuple[str, str | None], ...] = (),
    ) -> None:
        self.model = model = model or FALLBACK
        self._policy = policy or Policy()
        named = backends or tuple((name, None) for name in model.backends)
        self._backends = tuple(model.backend(name, version) for name, version in named)
        self._pricer = GrammarPricer(self._backends, model.vocabulary, self._policy)
        self._hooks = model.hooks
        self._grammars: TextCache[_Known] = TextCache(_CACHE_BYTES)
        self._shapes: dict[object, str] = {}
        self._forms: TextCache[Classification] = TextCache(_FORM_BYTES)
        self._plain_forms: TextCache[Classification] = TextCache(_PLAIN_FORM_BYTES)
        """Apart, so that plain requests that differ each time (in `user`, say) push nothing out that took longer."""
        self._templates: Templates[Classification] = Templates(_TEMPLATE_BYTES)

    def classify(self, path: str, body: bytes) -> Classification:
        """Features, predicted cost and signatures of one request; never raises.

        Takes as long as it takes: an event loop asks `begin`.
        """
        api = api_of(path)
        known = self._remembered(api, body)
        if known is not None:
            return known
        begun = self._begin(api, body)
        return begun if isinstance(begun, Classification) else at_once(begun)

    def begin(self, path: str, body: bytes) -> Classification | Turns:
        """The same without holding the caller up: at once where that takes less than 2 ms, else in turns.

        Plain requests and grammars seen before are classified at once. A turn takes about a millisecond; between turns
        the caller does other work.

        Drive turns with `next()` until `StopIteration`, whose value is the classification, or by `yield from`.
        """
        api = api_of(path)
        known = self._remembered(api, body)
        if known is not None:
            return known
        if len(body) > QUICK_BYTES and api is not Api.other and takes_long(body):
            return self._in_turns(api, body)
        return self._begin(api, body)

    def _remembered(self, api: Api, body: bytes) -> Classification | None:
        """The classification of a chat body that differs from those before in its messages alone."""
        if api is not Api.chat or len(body) > _REMEMBERED_BYTES:
            return None
        known, prompt_bytes = self._templates.match(body)
        return None if known is None else known.sized(prompt_bytes, len(body))

    def _begin(self, api: Api, body: bytes) -> Classification | Turns:
        if api is Api.other:
            return Classification(Features(body_bytes=len(body)), FREE, self._shape(("other",)))
        form: Form | None = None
        if api is Api.chat and len(body) <= _REMEMBERED_BYTES:
            form = form_of(body)
            if form is not None:
                known = self._plain_forms.get(form.key) or self._forms.get(form.key)
                if known is not None:
                    self._templates.keep(body, form.start, form.end, known)
                    return known.sized(form.prompt_bytes, len(body))
        data = parse(body)
        if isinstance(data, Refusal):
            return self._refused(Features(api=api, body_bytes=len(body)), data)
        if api is Api.chat and _SPECIAL.isdisjoint(data):
            features = _plain(data, len(body))
            if features is not None:
                shape = self._shapes.get(features.model)
                plain = Classification(features, FREE, shape or self._plain_shape(features.model))
                if form is not None:
                    self._plain_forms.put(form.key, plain)
                return plain
        turns = self._read(api, Skimmed(data), len(body))
        seen = take_turn(turns)
        if seen is None:
            return turns
        if form is not None and seen.refusal is None and seen.features.prompt_logprobs < 0:
            self._forms.put(form.key, seen)
        return seen

    def _in_turns(self, api: Api, body: bytes) -> Turns:
        skimmed = yield from skim(body, prompt_text=api is Api.generate)
        if isinstance(skimmed, Refusal):
            return self._refused(Features(api=api, body_bytes=len(body)), skimmed)
        yield
        return (yield from self._read(api, skimmed, len(body)))

    def _read(self, api: Api, skimmed: Skimmed, body_bytes: int) -> Turns:
        """The classification of a body that has been parsed, in full or in part."""
        try:
            reading = yield from read_body(api, skimmed.data, body_bytes)
        except MalformedError as error:
            refusal = Refusal(400, "invalid_value", error.message, error.param)
            return self._refused(Features(api=api, body_bytes=body_bytes), refusal)
        if skimmed.prompt_bytes or skimmed.batch > 1:
            reading = _with_prompt(reading, skimmed)
        seen = None if skimmed.heavy else self._seen(reading)
        if seen is not None:
            return seen
        return (yield from self._predicted(reading, skimmed.heavy))

    def _refused(self, features: Features, refusal: Refusal) -> Classification:
        return Classification(features, FREE, self._shape(("refused", refusal.code)), refusal=refusal)

    def _seen(self, reading: Reading) -> Classification | None:
        """The classification of a request whose like has been seen with the same grammar."""
        if len(reading.texts) != 1:
            return None
        grammar = self._grammars.get(reading.texts[0])
        if grammar is None:
            return None
        outcome = grammar.outcomes.get(_what_costs(reading.features))
        if outcome is None or reading.stop_regex or reading.largest_token_id >= 0:
            return None
        return Classification(reading.features, outcome.cost, outcome.signature, outcome.key, outcome.by_backend)

    def _predicted(self, reading: Reading, heavy: str | None) -> Turns:
        refusal = refusal_of(reading, self._policy)
        if refusal is not None:
            return self._refused(reading.features, refusal)
        known: list[_Known] = []
        for constraint, text in zip(reading.constraints, reading.texts, strict=True):
            grammar = self._grammars.get(text)
            if grammar is None:
                grammar = _Known((yield from self._pricer.price(constraint, text, _SLICE_WORK)))
                self._grammars.put(text, grammar)
            if grammar.cost.refusal is not None:
                return self._refused(reading.features, grammar.cost.refusal)
            known.append(grammar)
        grammars = [grammar.cost for grammar in known]
        features = reading.features
        key = ""
        if grammars:
            key = grammars[0].key
            if len(grammars) > 1:
                key = digest("g1", "+".join(grammar.key for grammar in grammars).encode())
        bound = heavy or heavy_by_limit(reading, self._policy)
        bound = bound or next((grammar.heavy for grammar in grammars if grammar.heavy), None)
        signature = self._shape((_shape_of(features), *(grammar.shape for grammar in grammars)))
        costs = self._costs(features, grammars, bound)
        outcome = _Outcome(costs[self._backends[0].label], signature, key, costs if grammars else {})
        if len(known) == 1 and heavy is None and len(known[0].outcomes) < _OUTCOMES:
            known[0].outcomes[_what_costs(features)] = outcome
        return Classification(features, outcome.cost, signature, key, outcome.by_backend)

    def _costs(self, features: Features, grammars: list[GrammarCost], heavy: str | None) -> dict[str, HookCost]:
        by_hook: dict[str, float] = {}
        for charge in hook_charges(features, self._hooks):
            by_hook[charge.hook] = by_hook.get(charge.hook, 0.0) + charge.step_us
        front_end = front_end_us(features, self._hooks)
        n = float(max(1, features.n))
        costs = {}
        for backend in self._backends:
            parts = [grammar.by_backend[backend.label] for grammar in grammars]
            # Of several, one constrains each sequence: those of a batch's prompts, of which the dearest stands for all.
            hooks = {**by_hook, "grammar": n * max([part.step_us for part in parts])} if parts else by_hook
            costs[backend.label] = HookCost(
                compile_ms=sum([part.compile_ms for part in parts], 0.0),
                step_us=sum(hooks.values(), 0.0),
                by_hook=hooks,
                heavy=heavy,
                refused=next((part.refused for part in parts if part.refused), None),
                front_end_us=front_end,
            )
            if not grammars:
                break
        return costs

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


def take_turn(turns: Turns) -> Classification | None:
    """One turn; the classification when it was the last."""
    try:
        next(turns)
    except StopIteration as done:
        classification: Classification = done.value
        return classification
    return None


def _with_prompt(reading: Reading, skimmed: Skimmed) -> Reading:
    """The reading of a skimmed body with the size of the prompt that was left out of it."""
    features = replace(
        reading.features,
        prompt_bytes=reading.features.prompt_bytes + skimmed.prompt_bytes,
        batch=skimmed.batch,
        n=reading.features.n * skimmed.batch,
    )
    return replace(reading, features=features)


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
    prompt_bytes = _plain_prompt_bytes(messages)
    if prompt_bytes < 0:
        return None
    return Features(
        api=Api.chat, model=model, stream=stream, max_tokens=limit, prompt_bytes=prompt_bytes, body_bytes=body_bytes
    )


def _plain_prompt_bytes(messages: object) -> int:
    """UTF-8 bytes of a list of messages whose contents are texts, -1 for everything else."""
    if type(messages) is not list:
        return -1
    prompt_bytes = 0
    for message in messages:
        if type(message) is not dict or "tools" in message:
            return -1
        content = message.get("content")
        if type(content) is not str:
            return -1
        prompt_bytes += text_bytes(content)
    return prompt_bytes


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


def _what_costs(features: Features) -> tuple[object, ...]:
    """All of the features that a prediction hangs on, beside the grammar."""
    return (
        features.model,
        features.grammar,
        features.n,
        features.tools,
        features.stop,
        features.stop_bytes,
        features.logit_bias,
        features.penalties,
        features.custom_logit_processor,
        features.return_hidden_states,
        features.logprobs and (features.top_logprobs, features.stream, features.max_tokens),
        features.prompt_logprobs >= 0
        and (features.prompt_logprobs, features.prompt_logprobs_start, features.prompt_bytes),
    )


_PLAIN_SHAPE = _shape_of(Features())[1:]

_CLASSIFIER = Classifier()


def classify(path: str, body: bytes) -> Classification:
    """`Classifier.classify` of a classifier without a cost model, shared by the process."""
    return _CLASSIFIER.classify(path, body)
