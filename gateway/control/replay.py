"""Recorded decisions made again by other rules: what would move, from where to where.

On paper: all pools are taken as up, and of the past only the recorded costs count. Changes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.control.traffic import Recorded
from gateway.routing.router import Router

NOWHERE = "(refused)"


@dataclass(slots=True)
class Move:
    """Requests that would go from one pool to another."""

    requests: int = 0
    signatures: Counter[str] = field(default_factory=Counter)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The rule that took them, and the one that would."""


@dataclass(slots=True)
class Replay:
    """What came of it. `other_rule`: those that another rule would send to the same pool."""

    requests: int = 0
    moved: int = 0
    other_rule: int = 0
    moves: dict[tuple[str, str], Move] = field(default_factory=dict)
    """By the pool that they went to, and the one they would."""


def replay(
    decisions: Iterable[Recorded], router: Router, pools_of: Callable[[str], frozenset[str] | None] = lambda _: None
) -> Replay:
    """Decide again. `router`: of the rules to be tried, its replicas all up. pools_of: what a tenant may use."""
    found = Replay()
    for each in decisions:
        found.requests += 1
        each.request.pools = pools_of(each.request.tenant)
        now = router.decide(each.request)
        before = each.pool or NOWHERE
        after = NOWHERE if now.pool is None else now.pool.name
        if before == after:
            found.other_rule += now.rule != each.rule
            continue
        found.moved += 1
        move = found.moves.setdefault((before, after), Move())
        move.requests += 1
        move.signatures[each.request.classification.signature] += 1
        move.rules[each.rule, now.rule] += 1
    return found
