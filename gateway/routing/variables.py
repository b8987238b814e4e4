"""The words a rule's `when:` may use: one row for each, with how it is read from a request.

Owns the vocabulary alone; how a value in the YAML becomes a test is conditions.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from gateway.hookcost.features import Api, Grammar
from gateway.routing.expression import compile_value
from gateway.routing.request import RouteRequest


class Kind(Enum):
    """How a variable is compared."""

    text = "text, where * and ? are wildcards"
    choice = "one of a fixed list of words"
    flag = "true or false"
    number = "a number"
    count = "a number, or true for at least one"
    optional = "a number, or true where the client gave one"


@dataclass(frozen=True)
class Variable:
    """One word of the vocabulary.

    text:    the source that reads it (see expression.py).
    choices: for `Kind.choice`, each word with the values that it stands for.
    absent:  for `Kind.optional`, the value that means "not given"; no comparison holds for it.
    """

    name: str
    kind: Kind
    text: str
    about: str
    choices: Mapping[str, tuple[str, ...]] | None = None
    absent: int | None = None

    @cached_property
    def read(self) -> Callable[[RouteRequest], object]:
        """Reads the value from a request, for explanations."""
        return compile_value(self.text)


def _hook(kind: str) -> str:
    return f'cost.by_hook.get("{kind}", 0.0)'


def _choices(words: type[Api] | type[Grammar]) -> dict[str, tuple[str, ...]]:
    return {word.value: (word.value,) for word in words}


_GRAMMARS = _choices(Grammar) | {"any": tuple(kind.value for kind in Grammar if kind is not Grammar.none)}

_TABLE = (
    Variable("method", Kind.text, "request.method", "HTTP method"),
    Variable("path", Kind.text, "request.path", "path without its query; * matches slashes too"),
    Variable("api", Kind.choice, "features.api", "dialect of the path", choices=_choices(Api)),
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
    Variable("body_bytes", Kind.number, "features.body_bytes", "bytes of the body"),
    Variable("compile_ms", Kind.number, "cost.compile_ms", "predicted compile time"),
    Variable("step_us", Kind.number, "cost.step_us", "predicted hook time per step"),
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
    Variable("signature", Kind.text, "classification.signature", "cost signature"),
    Variable("grammar_key", Kind.text, "classification.grammar_key", "key of the grammar"),
)

VARIABLES: Mapping[str, Variable] = {variable.name: variable for variable in _TABLE}
