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


@dataclass(frozen=True)
class Features:
    """The recognised parameters of one request, in one spelling for all dialects and engines.

    Counts are per request unless a name says otherwise; absent parameters have the engine's neutral value. Without
    slots, so that neutral values can stay in the class and copies are quick: see `plain` and `sized`.
    """

    api: Api = Api.other
    model: str | None = None
    stream: bool = False
    grammar: Grammar = Grammar.none
    grammar_bytes: int = 0
    """Bytes of the grammar, all tools together, as the client spelled it."""
    tools: int = 0
    """Tools attached, whether or not they become a grammar."""
    logprobs: bool = False
    top_logprobs: int = 0
    """Alternatives per output token (k); 0 with `logprobs` means only the chosen token's."""
    prompt_logprobs: int = -1
    """Alternatives per prompt token; -1: the prompt's logprobs are not asked for."""
    prompt_logprobs_start: int = 0
    """First prompt token whose logprobs are asked for."""
    top_k: int = -1
    stop: int = 0
    """Stop strings."""
    stop_bytes: int = 0
    stop_tokens: int = 0
    """Entries of `stop_token_ids`."""
    stop_regex: int = 0
    """Stop regular expressions."""
    logit_bias: int = 0
    """Entries of `logit_bias`, `bad_words` and `allowed_token_ids`: what is written into the logits row by index."""
    penalties: bool = False
    custom_logit_processor: bool = False
    return_hidden_states: bool = False
    n: int = 1
    """Sequences the engine will run: `n` (or `best_of`) times the prompts in a batch."""
    batch: int = 1
    """Prompts in the body."""
    max_tokens: int | None = None
    prompt_bytes: int = 0
    """UTF-8 bytes of prompt text, an estimate that never needs a tokenizer."""
    body_bytes: int = 0
    rid_given: bool = False
    """The body names its own request id (`rid`, SGLang)."""

    @classmethod
    def plain(
        cls, model: str | None, *, stream: bool, max_tokens: int | None, prompt_bytes: int, body_bytes: int
    ) -> "Features":
        """The features of a chat request that asks for nothing but text.

        Equal to the constructor's, which takes as long as all the rest of classifying such a request.
        """
        features = object.__new__(cls)
        values = features.__dict__
        values["api"] = Api.chat
        values["model"] = model
        values["stream"] = stream
        values["max_tokens"] = max_tokens
        values["prompt_bytes"] = prompt_bytes
        values["body_bytes"] = body_bytes
        return features

    def sized(self, prompt_bytes: int, body_bytes: int) -> "Features":
        """The same features with another prompt."""
        features = object.__new__(Features)
        values = features.__dict__
        values.update(self.__dict__)
        values["prompt_bytes"] = prompt_bytes
        values["body_bytes"] = body_bytes
        return features
