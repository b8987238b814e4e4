"""Which pool of a group runs a request's grammar at the least predicted cost.

Half of the schemas that cost xgrammar more than 500 ms cost llguidance 2 ms, and others it refuses: so pools with
different grammar backends do well together. Owns the comparison; what a grammar costs on each backend was predicted
when it was classified, and is remembered with it.
"""

from collections.abc import Sequence
from typing import Final

from gateway.hookcost.classification import Classification
from gateway.hookcost.cost import HookCost
from gateway.routing.pool import Pool

_USUAL_TOKENS: Final = 256
_MOST_TOKENS: Final = 1024
"""Few replies are as long as their limit."""
_EQUAL_FACTOR: Final = 1.25
_EQUAL_US: Final = 1000.0
"""Predictions are not so exact that less than this would be a reason."""


def cheapest_first(pools: Sequence[Pool], classification: Classification) -> list[Pool]:
    """The pools by what the request would cost there, those that refuse its grammar last.

    Where it costs about as much as on the cheapest, and where it has no grammar, the least loaded comes first.
    """
    by_backend = classification.by_backend
    if not by_backend:
        return sorted(pools, key=_load)
    limit = classification.features.max_tokens
    tokens = float(_USUAL_TOKENS if limit is None else min(limit, _MOST_TOKENS))
    fallback = classification.cost
    totals = [_total_us(by_backend.get(pool.backend or "", fallback), tokens) for pool in pools]
    refused = [by_backend.get(pool.backend or "", fallback).refused is not None for pool in pools]
    able = [total for total, no in zip(totals, refused, strict=True) if not no]
    least = min(able, default=0.0)
    enough = least * _EQUAL_FACTOR + _EQUAL_US
    keys = [
        (no, 0.0 if total <= enough else total, pool.least_in_flight)
        for pool, total, no in zip(pools, totals, refused, strict=True)
    ]
    return [pools[at] for at in sorted(range(len(pools)), key=keys.__getitem__)]


def _total_us(cost: HookCost, tokens: float) -> float:
    """Of a request whose grammar is compiled for it: what was compiled before is not known."""
    return cost.compile_ms * 1000.0 + cost.step_us * tokens


def _load(pool: Pool) -> int:
    return pool.least_in_flight
