"""What one request asks of the engine's step thread, read from its parsed body.

Owns the vocabulary in which rules, predictions and explanations speak. Knows no socket, pool or price.
"""

from dataclasses import dataclass
from enum import StrEnum


class Api(StrEnum):
    """The dialect a path speaks; `other` is passed through unread."""

    chat = "chat"
    completions = "completions"
    responses = "responses"
    messages = "messages"
    generate = "generate"
    other = "other"


class Grammar(StrEnum):
    """What constrains the output, by the kind of automaton that the engine must build."""

    none = "none"
    json_object = "json_object"
    json_schema = "json_schema"
    regex = "regex"
    ebnf = "ebnf"
    choice = "choice"
    structural_tag = "structural_tag"
    tools = "tools"


@dataclass(init=False)
class Features:
    """The recognised parameters of one request, in one spelling for all dialects and engines. Not to be changed.

    Counts are per request unless a name says otherwise; absent parameters have the engine's neutral value.

    api:                   the dialect.
    grammar_bytes:         bytes of the grammar, all tools together, as the client spelled it.
    tools:                 tools attached, whether or not they become a grammar.
    top_logprobs:          alternatives per output token (k); 0 with `logprobs` means only the chosen token's.
    prompt_logprobs:       alternatives per prompt token; -1: the prompt's logprobs are not asked for.
    prompt_logprobs_start: first prompt token whose logprobs are asked for.
    stop, stop_regex:      stop strings, stop regular expressions.
    stop_tokens:           entries of `stop_token_ids`.
    logit_bias:            entries of `logit_bias`, `bad_words` and `allowed_token_ids`: what is written into the
                           logits row by index.
    n:                     sequences the engine will run: `n` (or `best_of`) times the prompts in a batch.
    batch:                 prompts in the body.
    prompt_bytes:          UTF-8 bytes of prompt text, an estimate that never needs a tokenizer.
    rid_given:             the body names its own request id (`rid`, SGLang).

    Made for every request, so the initialiser is spelled out: compiled, it takes a tenth of a generated one's time.
    """

    api: Api
    model: str | None
    stream: bool
    grammar: Grammar
    grammar_bytes: int
    tools: int
    logprobs: bool
    top_logprobs: int
    prompt_logprobs: int
    prompt_logprobs_start: int
    top_k: int
    stop: int
    stop_bytes: int
    stop_tokens: int
    stop_regex: int
    logit_bias: int
    penalties: bool
    custom_logit_processor: bool
    return_hidden_states: bool
    n: int
    batch: int
    max_tokens: int | None
    prompt_bytes: int
    body_bytes: int
    rid_given: bool

    def __init__(
        self,
        api: Api = Api.other,
        model: str | None = None,
        stream: bool = False,
        grammar: Grammar = Grammar.none,
        grammar_bytes: int = 0,
        tools: int = 0,
        logprobs: bool = False,
        top_logprobs: int = 0,
        prompt_logprobs: int = -1,
        prompt_logprobs_start: int = 0,
        top_k: int = -1,
        stop: int = 0,
        stop_bytes: int = 0,
        stop_tokens: int = 0,
        stop_regex: int = 0,
        logit_bias: int = 0,
        penalties: bool = False,
        custom_logit_processor: bool = False,
        return_hidden_states: bool = False,
        n: int = 1,
        batch: int = 1,
        max_tokens: int | None = None,
        prompt_bytes: int = 0,
        body_bytes: int = 0,
        rid_given: bool = False,
    ) -> None:
        self.api = api
        self.model = model
        self.stream = stream
        self.grammar = grammar
        self.grammar_bytes = grammar_bytes
        self.tools = tools
        self.logprobs = logprobs
        self.top_logprobs = top_logprobs
        self.prompt_logprobs = prompt_logprobs
        self.prompt_logprobs_start = prompt_logprobs_start
        self.top_k = top_k
        self.stop = stop
        self.stop_bytes = stop_bytes
        self.stop_tokens = stop_tokens
        self.stop_regex = stop_regex
        self.logit_bias = logit_bias
        self.penalties = penalties
        self.custom_logit_processor = custom_logit_processor
        self.return_hidden_states = return_hidden_states
        self.n = n
        self.batch = batch
        self.max_tokens = max_tokens
        self.prompt_bytes = prompt_bytes
        self.body_bytes = body_bytes
        self.rid_given = rid_given

    def sized(self, prompt_bytes: int, body_bytes: int) -> "Features":
        """The same features with another prompt."""
        return Features(
            self.api,
            self.model,
            self.stream,
            self.grammar,
            self.grammar_bytes,
            self.tools,
            self.logprobs,
            self.top_logprobs,
            self.prompt_logprobs,
            self.prompt_logprobs_start,
            self.top_k,
            self.stop,
            self.stop_bytes,
            self.stop_tokens,
            self.stop_regex,
            self.logit_bias,
            self.penalties,
            self.custom_logit_processor,
            self.return_hidden_states,
            self.n,
            self.batch,
            self.max_tokens,
            prompt_bytes,
            body_bytes,
            self.rid_given,
        )
