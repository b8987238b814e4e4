"""A routing rule: conditions that must all hold, and the pool that takes the request then."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.routing.conditions import Condition, compile_condition


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` becomes the response header `x-steplane-route`; a rule without conditions takes every request."""

    name: str
    pool: str
    conditions: tuple[Condition, ...] = ()


def compile_rule(name: str, pool: str, when: Mapping[str, object]) -> Rule:
    """Build a rule from the `when:` of the YAML. Raises ConditionError."""
    return Rule(name, pool, tuple(compile_condition(key, wanted) for key, wanted in when.items()))
