"""Which requests no engine should see: limits and faults, and what is done about each. Data; the checks are in
`refusal.py`.

The defaults are safe ones: refused is what has crashed or frozen an engine (`FIELD_REPORTS`), heavy is what is only
dear.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gateway.hookcost.pattern import (
    CONTRADICTION,
    FAULTS,
    LOOKAROUND,
    MALFORMED,
    MALFORMED_GRAMMAR,
    TOO_MANY_VALUES,
    UNCOMPILABLE,
)

REJECT, HEAVY, ALLOW = "reject", "heavy", "allow"
_ACTIONS = (REJECT, HEAVY, ALLOW)

_FAULT_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        MALFORMED: REJECT,
        MALFORMED_GRAMMAR: REJECT,
        CONTRADICTION: REJECT,
        UNCOMPILABLE: REJECT,
        LOOKAROUND: REJECT,
        TOO_MANY_VALUES: REJECT,
    }
)


class PolicyError(ValueError):
    """A policy that can't be used. `key` is the offending entry."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


@dataclass(frozen=True, slots=True)
class Policy:
    """What is refused, and what is heavy whatever the prediction says.

    faults:               what to do about each of `pattern.FAULTS`: `reject`, `heavy` or `allow`.
    nonlinear_stop_regex: a `stop_regex` with nested or adjacent unbounded repetitions, or one that does not compile: it
                          runs with backtracking on the step thread.
    max_top_logprobs:     more alternatives per token, of the output or the prompt, are refused.
    heavy_top_logprobs:   more make the request heavy; a routing rule on `top_logprobs` does the same with more choice.
    max_sequences:        more sequences (`n`, `best_of`, beams; not the prompts of a batch) are refused.
    max_enum_values:      more values in one `enum` are refused.
    max_token_id:         larger ids in `logit_bias`, `stop_token_ids` and the like are refused: set it to the
                          vocabulary's size less one. The default is beyond every known vocabulary.
    """

    faults: Mapping[str, str] = field(default_factory=lambda: _FAULT_ACTIONS)
    nonlinear_stop_regex: str = REJECT
    max_top_logprobs: int = 100
    heavy_top_logprobs: int = 100
    max_sequences: int = 128
    max_enum_values: int = 10_000
    max_token_id: int = (1 << 20) - 1


def policy_from(data: Mapping[str, Any]) -> Policy:
    """A policy from plain data: the fields of `Policy`, with the faults beside them under their own names.

    Raises:
        PolicyError: an unknown key or a value of the wrong kind.
    """
    faults = dict(_FAULT_ACTIONS)
    limits: dict[str, Any] = {}
    known = [name for name in Policy.__dataclass_fields__ if name != "faults"]
    for key, value in data.items():
        if key in FAULTS or key == "nonlinear_stop_regex":
            if value not in _ACTIONS:
                raise PolicyError(key, f"one of {', '.join(_ACTIONS)} was expected, not {value!r}")
            if key in FAULTS:
                faults[key] = value
            else:
                limits[key] = value
        elif key in known:
            if type(value) is not int or value < 0:
                raise PolicyError(key, f"a whole number of at least 0 was expected, not {value!r}")
            limits[key] = value
        else:
            raise PolicyError(key, f"unknown key; known are {', '.join([*FAULTS, *known])}")
    return Policy(faults=faults, **limits)
