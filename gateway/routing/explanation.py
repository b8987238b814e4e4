"""Why a request matched the rule it did: every rule looked at, with the values its conditions saw.

Off the hot path; evaluates the same compiled conditions as the router.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.routing.conditions import Condition
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
    """One rule: it matched when all its conditions held."""

    rule: str
    pool: str
    matched: bool
    conditions: tuple[ConditionVerdict, ...]


def explain_rules(rules: Iterable[Rule], request: RouteRequest) -> tuple[RuleVerdict, ...]:
    """The verdicts of all rules in order, up to and including the first that matches."""
    verdicts: list[RuleVerdict] = []
    for rule in rules:
        conditions = tuple(_verdict(condition, request) for condition in rule.conditions)
        matched = all(condition.holds for condition in conditions)
        verdicts.append(RuleVerdict(rule.name, rule.pool, matched, conditions))
        if matched:
            break
    return tuple(verdicts)


def _verdict(condition: Condition, request: RouteRequest) -> ConditionVerdict:
    return ConditionVerdict(condition.key, condition.wanted, condition.read(request), condition.holds(request))
