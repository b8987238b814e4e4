"""Who pays for log probabilities that SGLang computes, copies and ships for several requests at once.

A request's share follows the number of values made for it: positions x (top k + 1). Requests without log probabilities
pay nothing.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

# Request id and its part of 1; None: the part that is nobody's in particular.
Share = tuple[str | None, float]
# Handing on one token without log probabilities costs about as much as this many values.
_PLAIN_TOKEN = 20


def prompt_shares(batch: Any) -> list[Share]:
    """Shares of the prompt log probabilities of a prefill batch (`ScheduleBatch`)."""
    return _normalised(
        (req.rid, max(0, length - start) * _width(req))
        for req, length, start in zip(
            batch.reqs,
            getattr(batch, "extend_lens", None) or repeat(0),
            getattr(batch, "extend_logprob_start_lens", None) or repeat(0),
            strict=False,
        )
        if req.return_logprob
    )


def token_shares(batch: Any) -> list[Share]:
    """Shares of the log probabilities of one new token for each request of a batch."""
    return _normalised((req.rid, _width(req)) for req in batch.reqs if req.return_logprob)


def output_shares(reqs: Any) -> list[Share]:
    """Shares of handing finished tokens on. A token is everybody's; the values that come with it are its request's."""
    shares: list[tuple[str | None, int]] = [(req.rid, _unsent(req)) for req in reqs if req.return_logprob]
    if not shares:
        return []
    return _normalised([*shares, (None, _PLAIN_TOKEN * len(reqs))])


def processor_shares(batch: Any) -> list[Share]:
    """Shares of custom logit processors."""
    return _normalised((req.rid, 1) for req in batch.reqs if getattr(req, "custom_logit_processor", None))


def _width(req: Any) -> int:
    return 1 + int(getattr(req.logprob, "top_logprobs_num", 0) or 0)


def _unsent(req: Any) -> int:
    rows = 1
    if not getattr(req, "input_logprob_sent", True):
        rows += len(getattr(req.logprob, "input_token_logprobs_val", None) or ())
    return rows * _width(req)


def _normalised(weights: Iterable[tuple[str | None, int]]) -> list[Share]:
    found = [(rid, weight) for rid, weight in weights if weight > 0]
    total = sum([weight for _, weight in found])
    return [(rid, weight / total) for rid, weight in found]
