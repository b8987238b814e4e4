"""The words a rule's `when:` may use: one row for each, with how it is read from a request.

Owns the vocabulary alone; how a value in the YAML becomes a test is conditions.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from gateway.hookcost.features import Api, Grammar
from gateway.hookcost.prompt import BYTES_PER_TOKEN
from gateway.routing.expression import compile_value
from gateway.routing.head import header_reader, query_reader
from gateway.routing.knowledge import NEVER, Knowledge
from gateway.routing.request import RouteRequest


class Kind(Enum):
    """How a variable is compared."""

    text = "text, where * and ? are wildcards"
    choice = "one of a fixed list of words"
    flag = "true or false"
    number = "a number"
    count = "a number, or true for at least one"
    optional = "a number, or true where there is one"
    texts = "a mapping of names to texts, or to true or false for a name that is there or is not"


@dataclass(frozen=True)
class Variable:
    """One word of the vocabulary.

    text:      the source that reads it (see expression.py), `{0}`, … in it stand for `constants`.
    choices:   for `Kind.choice`, each word with the values that it stands for.
    absent:    for `Kind.optional` and `Kind.text`, the value that means "not given"; no comparison holds for it.
    entry:     for `Kind.texts`, the variable of one name.
    """

    name: str
    kind: Kind
    text: str
    about: str
    choices: Mapping[str, tuple[str, ...]] | None = None
    absent: float | None = None
    constants: tuple[object, ...] = ()
    entry: Callable[[str], "Variable"] | None = None

    @cached_property
    def read(self) -> Callable[[RouteRequest, Knowledge], object]:
        """Reads the value from a request, None where it is absent. For explanations, and for looking rules up."""
        text = self.text
        if self.absent is not None:
            text = f"(None if {text} == {self.absent!r} else {text})"
        return compile_value(text, self.constants)


def _hook(kind: str) -> str:
    return f'cost.by_hook.get("{kind}", 0.0)'


def _choices(words: type[Api] | type[Grammar]) -> dict[str, tuple[str, ...]]:
    return {word.value: (word.value,) for word in words}


def _header(name: str) -> Variable:
    return _header_of(name.lower())


# One for each name: what a rule has read of a head is remembered for the others that ask for the same.
@lru_cache(maxsize=256)
def _header_of(name: str) -> Variable:
    about = f"the header {name}"
    return Variable(f"headers.{name}", Kind.text, "{0}(request.head)", about, constants=(header_reader(name),))


@lru_cache(maxsize=256)
def _parameter(name: str) -> Variable:
    about = f"the parameter {name} of the query"
    return Variable(f"query.{name}", Kind.text, "{0}(request.head)", about, constants=(query_reader(name),))


_GRAMMARS = _choices(Grammar) | {"any": tuple(kind.value for kind in Grammar if kind is not Grammar.none)}

# English, code and most scripts of several bytes a letter come to 3 to 5 bytes for a token of today's vocabularies.
_TOKENS = f"(features.prompt_bytes + {BYTES_PER_TOKEN - 1}) // {BYTES_PER_TOKEN}"

_TABLE = (
    Variable("method", Kind.text, "request.method", "HTTP method"),
    Variable("path", Kind.text, "request.path", "path without its query; * matches slashes too"),
    Variable("api", Kind.choice, "features.api", "dialect of the path", choices=_choices(Api)),
    Variable("headers", Kind.texts, "request.head", "headers by name, the first of each", entry=_header),
    Variable("query", Kind.texts, "request.head", "parameters of the query, the first of each", entry=_parameter),
    Variable("tenant", Kind.text, "request.tenant", "whose request it is: header or digest of the API key"),
    Variable("priority", Kind.number, "knows.priority(request.tenant)", "the tenant's priority, 0 where none is set"),
    Variable("model", Kind.text, "features.model", "model named in the body; one that is absent matches nothing"),
    Variable("stream", Kind.flag, "features.stream", "the reply is streamed"),
    Variable("grammar", Kind.choice, "features.grammar", "what constrains the output", choices=_GRAMMARS),
    Variable("grammar_bytes", Kind.number, "features.grammar_bytes", "size of the grammar, all tools together"),
    Variable("tools", Kind.count, "features.tools", "tools attached"),
    Variable("logprobs", Kind.flag, "features.logprobs", "logprobs of output tokens are asked for"),
    Variable("top_logprobs", Kind.count, "features.top_logprobs", "alternatives per output token"),
    Variable("prompt_logprobs", Kind.optional, "features.prompt_logprobs", "alternatives per prompt token", absent=-1),
    Variable("top_k", Kind.optional, "features.top_k", "sampling's top-k", absent=-1),
    Variable("stop", Kind.count, "features.stop", "stop strings"),
    Variable("stop_bytes", Kind.number, "features.stop_bytes", "size of all stop strings"),
    Variable("stop_tokens", Kind.count, "features.stop_tokens", "stop token ids"),
    Variable("stop_regex", Kind.count, "features.stop_regex", "stop regular expressions"),
    Variable("logit_bias", Kind.count, "features.logit_bias", "entries of logit_bias"),
    Variable("penalties", Kind.flag, "features.penalties", "a sampling penalty is set"),
    Variable("custom_logit_processor", Kind.flag, "features.custom_logit_processor", "the body carries code"),
    Variable("return_hidden_states", Kind.flag, "features.return_hidden_states", "hidden states are asked for"),
    Variable("n", Kind.number, "features.n", "sequences that the engine will run"),
    Variable("batch", Kind.number, "features.batch", "prompts in the body"),
    Variable("max_tokens", Kind.optional, "features.max_tokens", "limit of output tokens"),
    Variable("prompt_bytes", Kind.number, "features.prompt_bytes", "bytes of prompt text"),
    Variable("prompt_tokens", Kind.number, _TOKENS, "estimate of the prompt's tokens: four bytes of UTF-8 make one"),
    Variable("body_bytes", Kind.number, "features.body_bytes", "bytes of the body"),
    Variable("compile_ms", Kind.number, "cost.compile_ms", "compile time: predicted, and corrected by what was seen"),
    Variable("step_us", Kind.number, "cost.step_us", "hook time per step: predicted, and corrected by what was seen"),
    Variable("predicted_compile_ms", Kind.number, "(classification.predicted or cost).compile_ms", "the prediction"),
    Variable("predicted_step_us", Kind.number, "(classification.predicted or cost).step_us", "the prediction"),
    Variable(
        "observed_compile_ms",
        Kind.optional,
        "knows.observed_compile_ms(classification.signature)",
        "mean compile time seen of the signature",
        absent=NEVER,
    ),
    Variable(
        "observed_step_us",
        Kind.optional,
        "knows.observed_step_us(classification.signature)",
        "mean hook time per step seen of the signature",
        absent=NEVER,
    ),
    Variable("grammar_us", Kind.number, _hook("grammar"), "the grammar's part of step_us"),
    Variable("logprobs_us", Kind.number, _hook("logprobs"), "the logprobs' part of step_us"),
    Variable("stop_us", Kind.number, _hook("stop"), "the stop conditions' part of step_us"),
    Variable("sampling_us", Kind.number, _hook("sampling"), "sampling's part of step_us"),
    Variable("prefill_us", Kind.number, _hook("prefill"), "the prefill's part of step_us"),
    Variable(
        "heavy",
        Kind.flag,
        "(cost.heavy is not None)",
        "heavy by definition: a bound of the analysis was exceeded",
    ),
    Variable(
        "quarantined",
        Kind.flag,
        "knows.is_quarantined(classification.signature, request.tenant)",
        "the breaker of the signature, or of the tenant, is open or half-open",
    ),
    Variable("signature", Kind.text, "classification.signature", "cost signature"),
    Variable("grammar_key", Kind.text, "classification.grammar_key", "key of the grammar"),
)

VARIABLES: Mapping[str, Variable] = {variable.name: variable for variable in _TABLE}
