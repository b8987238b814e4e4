"""What the engines of a pool can do: requests that they would choke on, or crash over, don't get there.

SGLang's process died of any grammar beside speculative decoding (sgl-project/sglang#24283), engines die of more
alternatives per token than their vocabulary has (#40076), and vLLM refuses more than it was started with. Owns what a
request may need and how its lack is told; which pool comes next is the router's.
"""

from dataclasses import dataclass
from functools import cached_property

from gateway.hookcost.classification import Classification
from gateway.hookcost.features import Grammar


@dataclass(frozen=True, slots=True)
class Lack:
    """The answer to a request that no pool of its way can take. Holds nothing of the request: there are few of them."""

    status: int
    code: str
    message: str
    param: str | None


@dataclass(frozen=True)
class Capabilities:
    """What a pool can take; everything by default.

    max_top_logprobs: alternatives per token, of the output or the prompt; None: any.
    models:           names that it serves; None: any. lora: names of adapters that clients may name alone, or after
                      the model and a colon (SGLang).
    """

    grammar: bool = True
    logprobs: bool = True
    prompt_logprobs: bool = True
    max_top_logprobs: int | None = None
    models: frozenset[str] | None = None
    lora: frozenset[str] = frozenset()

    def lack(self, classification: Classification) -> Lack | None:
        """Why the pool can't take a request; None where it can. Constant time."""
        features = classification.features
        model = features.model
        if model is not None and self.models is not None and not self._serves(model):
            return self._unknown_model
        if not self.grammar and features.grammar is not Grammar.none:
            return _NO_GRAMMAR
        if not self.logprobs and (features.logprobs or features.top_logprobs):
            return _NO_LOGPROBS
        if not self.prompt_logprobs and features.prompt_logprobs >= 0:
            return _NO_PROMPT_LOGPROBS
        most = self.max_top_logprobs
        if most is not None and (features.top_logprobs > most or features.prompt_logprobs > most):
            return self._too_many_logprobs
        return None

    def document(self) -> dict[str, object]:
        """For the API."""
        return {
            "grammar": self.grammar,
            "logprobs": self.logprobs,
            "prompt_logprobs": self.prompt_logprobs,
            "max_top_logprobs": self.max_top_logprobs,
            "models": None if self.models is None else sorted(self.models),
            "lora": sorted(self.lora),
        }

    def _serves(self, model: str) -> bool:
        assert self.models is not None
        if model in self.models or model in self.lora:
            return True
        base, colon, adapter = model.rpartition(":")
        return bool(colon) and base in self.models and adapter in self.lora

    @cached_property
    def _unknown_model(self) -> Lack:
        served = ", ".join(sorted([*(self.models or ()), *self.lora]))
        return Lack(404, "model_not_found", f"the model does not exist here; there are {served}", "model")

    @cached_property
    def _too_many_logprobs(self) -> Lack:
        message = f"the engines for this request give {self.max_top_logprobs} alternatives per token at most"
        return Lack(400, "too_many_logprobs", message, "top_logprobs")


_NO_GRAMMAR = Lack(
    400,
    "grammar_unsupported",
    "the engines for this request can't constrain their output: send it without a grammar, schema or forced tool",
    None,
)
_NO_LOGPROBS = Lack(400, "logprobs_unsupported", "the engines for this request give no logprobs", "logprobs")
_NO_PROMPT_LOGPROBS = Lack(
    400, "prompt_logprobs_unsupported", "the engines for this request give no logprobs of the prompt", "prompt_logprobs"
)
