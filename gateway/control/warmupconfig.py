"""The configuration of warm-ups: what a replica that comes up is fed before it takes requests."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gateway.control.document import Document
from gateway.control.part import Count, Part, Seconds, Size
from gateway.control.problem import Problem

if TYPE_CHECKING:
    from gateway.control.config import PoolConfig

_MOST_GRAMMARS = 1000


class WarmUpConfig(Part):
    """The grammars that are used most, compiled by a replica that comes up before it takes requests.

    grammars:          how many of them.
    keep_bytes:        of memory, for all that are kept.
    max_grammar_bytes: a larger one is not kept.
    concurrency:       how many are compiled at the same time.
    timeout_s:         then the replica takes requests, whatever was compiled.
    """

    grammars: Annotated[int, Field(ge=1, le=_MOST_GRAMMARS)] = 50
    keep_bytes: Size = 4 * 1024 * 1024
    max_grammar_bytes: Size = 64 * 1024
    concurrency: Count = 2
    timeout_s: Seconds = 30


def check_warm_ups(pools: Mapping[str, "PoolConfig"], document: Document) -> list[Problem]:
    """Warm-ups that will never have anything to compile, for a warning."""
    return [
        document.problem(("pools", name, "warm_up"), "a pool that takes grammars", "capabilities.grammar: false")
        for name, pool in pools.items()
        if pool.warm_up is not None and not pool.capabilities.grammar
    ]
