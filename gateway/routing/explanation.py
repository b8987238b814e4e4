"""Why a request matched the rule it did: every rule looked at, with the values its conditions saw.

Off the hot path; evaluates the same compiled conditions as the router.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.routing.conditions import Condition
from gateway.routing.knowledge import NOTHING_KNOWN, Knowledge
from gateway.routing.request import RouteRequest
from gateway.routing.rule import Rule


@dataclass(frozen=True, slots=True)
class ConditionVerdict:
    """One condition: what the rule wanted, what the request had, and whether that holds."""

    key: str
    wanted: object
    actual: object
    holds: bool


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """One rule: it matched when all its conditions held. `pool` is None where the rule refuses."""

    rule: str
    pool: str | None
    matched: bool
    conditions: tuple[ConditionVerdict, ...]


def explain_rules(
    rules: Iterable[Rule], request: RouteRequest, knows: Knowledge = NOTHING_KNOWN
) -> tuple[RuleVerdict, ...]:
    """The verdicts of all rules in order, up to and including the first that matches. Takes no rule's turn."""
    verdicts: list[RuleVerdict] = []
    for rule in rules:
        conditions = tuple(_verdict(condition, request, knows) for condition in rule.conditions)
        matched = all(condition.holds for condition in conditions)
        verdicts.append(RuleVerdict(rule.name, rule.pool, matched, conditions))
        if matched:
            break
    return tuple(verdicts)


def _verdict(condition: Condition, request: RouteRequest, knows: Knowledge) -> ConditionVerdict:
    actual, holds = condition.read(request, knows), condition.holds(request, knows)
    return ConditionVerdict(condition.key, condition.wanted, actual, holds)
