"""Sampling parameters: what SGLang refuses is refused, in its words."""

import re
from typing import Any

import pytest

from replica.simulator.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a non-negative finite number, got -1.0."),
        ({"temperature": float("nan")}, "temperature must be a non-negative finite number, got nan."),
        ({"top_p": 0.0}, "top_p must be in (0, 1], got 0.0."),
        ({"min_p": 1.5}, "min_p must be in [0, 1], got 1.5."),
        ({"top_k": 0}, "top_k must be -1 (disable) or at least 1, got 0."),
        ({"frequency_penalty": 2.5}, "frequency_penalty must be in [-2, 2], got 2.5."),
        ({"presence_penalty": -3.0}, "presence_penalty must be in [-2, 2], got -3.0."),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be in (0, 2] (1.0 = no penalty), got 0.0."),
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1."),
        ({"min_new_tokens": -1}, "min_new_tokens must be in [0, max_new_tokens], got -1."),
        ({"min_new_tokens": 9, "max_new_tokens": 3}, "min_new_tokens must be in [0, max_new_tokens(3)], got 9."),
        ({"seed": 2**63}, f"sampling_seed must be in [-2**63, 2**63 - 1], got {2**63}."),
        ({"n": 0}, "n must be at least 1, got 0."),
        ({"stop": ("x",) * 33}, "at most 32 stop strings are allowed, got 33"),
        ({"stop_regex": ("x",) * 33}, "at most 32 stop_regex patterns are allowed, got 33"),
        ({"stop_regex": ("x" * 257,)}, "stop_regex is 257 bytes, over the 256-byte limit"),
        ({"stop_regex": ("(",)}, "stop_regex '(' is no regular expression"),
    ],
)
def test_refused_values_say_what_was_expected(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SamplingParams(**given)


def test_a_logit_bias_outside_the_vocabulary_is_refused() -> None:
    params = SamplingParams(logit_bias={5: 1.0, 100: 1.0})
    params.verify_vocabulary(101)
    with pytest.raises(ValueError, match=r"logit_bias must has keys in \[0, 99\], got 100."):
        params.verify_vocabulary(100)
