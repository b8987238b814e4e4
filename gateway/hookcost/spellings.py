"""The names under which engines and dialects take one parameter, and where in a body they may stand.

What a rule limits or takes out must go in each of them, for what one version of an engine ignores another obeys.
Sources: see sampling.py, which reads them.
"""

from collections.abc import Mapping
from typing import Final

from gateway.hookcost.features import Api

_OUTPUT_TOKENS = ("max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens")
_ALTERNATIVES = ("top_logprobs", "top_logprobs_num", "logprobs")

_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "max_tokens": _OUTPUT_TOKENS,
    "top_logprobs": _ALTERNATIVES,
    "prompt_logprobs": ("prompt_logprobs",),
    "n": ("n", "best_of", "beam_width"),
    "logprobs": (*_ALTERNATIVES, "return_logprob", "token_ids_logprob", "logprob_token_ids", "logprob_start_len"),
    "stop": ("stop", "stop_sequences", "stop_strs"),
    "stop_regex": ("stop_regex", "stop_regex_strs"),
    "min_tokens": ("min_tokens", "min_new_tokens"),
    "custom_logit_processor": ("custom_logit_processor", "logits_processors"),
}

SAMPLING_PARAMS: Final = "sampling_params"


def spellings(name: str) -> tuple[str, ...]:
    """All names of a parameter, by any usual one of them; a name that is not known stands for itself."""
    return _FAMILIES.get(name, (name,))


def containers(api: Api, inside: str) -> tuple[str, ...]:
    """The fields that hold further parameters, in the body (`inside` is "") or in a field of it."""
    if inside == SAMPLING_PARAMS:
        return ()
    if inside:
        return (SAMPLING_PARAMS,)
    return ("extra_body", SAMPLING_PARAMS, "parameters") if api is Api.generate else ("extra_body", SAMPLING_PARAMS)


def output_limit(api: Api, engine: str) -> tuple[str, str]:
    """Where a limit of output tokens is put in for a client that gave none: the field that holds it, "", and its name.

    engine: `sglang`, `vllm` or `other`.
    """
    if api is Api.responses:
        return "", "max_output_tokens"
    if api is Api.generate:
        return SAMPLING_PARAMS, "max_tokens" if engine == "vllm" else "max_new_tokens"
    return "", "max_tokens"
