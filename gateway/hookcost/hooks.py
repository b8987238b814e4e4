"""The price of everything in a request that is no grammar: logprobs, stop conditions, samplers. Knows no grammar."""

from dataclasses import dataclass

from gateway.hookcost.features import Features
from gateway.hookcost.prices import HookPrices
from gateway.hookcost.prompt import BYTES_PER_TOKEN

_UNKNOWN_LENGTH = 1000
"""Output tokens of a request that sets no limit, where the length matters."""


@dataclass(frozen=True, slots=True)
class HookCharge:
    """What one feature of a request adds to a step (microseconds, all its sequences), under which hook kind."""

    hook: str
    feature: str
    step_us: float


def hook_charges(features: Features, prices: HookPrices) -> list[HookCharge]:
    """Step-thread microseconds by feature; prompt logprobs fall into one single step, everything else into each."""
    n = max(1, features.n)
    charges: list[HookCharge] = []
    if features.logprobs:
        row = prices.logprob_row + prices.logprob_alternative * features.top_logprobs
        charges.append(HookCharge("logprobs", "top_logprobs", n * row))
    if features.prompt_logprobs >= 0:
        tokens = max(0.0, features.prompt_bytes / BYTES_PER_TOKEN - features.prompt_logprobs_start)
        token_us = prices.prompt_logprob_token + prices.prompt_logprob_alternative * features.prompt_logprobs
        charges.append(HookCharge("prefill", "prompt_logprobs", tokens * token_us))
    if features.stop:
        charges.append(
            HookCharge("stop", "stop", n * (prices.stop * features.stop + prices.stop_byte * features.stop_bytes))
        )
    if features.stop_regex:
        charges.append(HookCharge("stop", "stop_regex", n * prices.stop_regex * features.stop_regex))
    if features.logit_bias:
        charges.append(HookCharge("sampling", "logit_bias", n * prices.logit_bias * features.logit_bias))
    if features.penalties:
        charges.append(HookCharge("sampling", "penalties", n * prices.penalties))
    if features.custom_logit_processor:
        charges.append(HookCharge("sampling", "custom_logit_processor", n * prices.custom_logit_processor))
    if features.return_hidden_states:
        charges.append(HookCharge("sampling", "return_hidden_states", n * prices.hidden_states))
    return charges


def front_end_us(features: Features, prices: HookPrices) -> float:
    """Microseconds of the API server, not of the step thread, for one token of all sequences: the text of logprobs.

    A stream whose engine decodes all earlier alternatives again with each chunk pays for its length, too: the last
    chunk is what this says.
    """
    if not features.logprobs:
        return 0.0
    rows = max(1, features.n) * (features.top_logprobs + 1)
    cost = rows * prices.front_end_logprob_us
    if features.stream and features.top_logprobs:
        cost += rows * prices.front_end_redecode_us * (features.max_tokens or _UNKNOWN_LENGTH)
    return cost
