"""Budgets that what is sent to their pool can't keep, and limits that a budget makes pointless; for warnings."""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.control.document import Document, Location
from gateway.control.problem import Problem, shown
from gateway.routing.cel.bounds import least_of
from gateway.routing.cel.parser import parse
from gateway.routing.cel.tree import CelError
from gateway.routing.rule import CEL

if TYPE_CHECKING:
    from gateway.control.config import Config
    from gateway.control.ruleconfig import RuleConfig

_LOWER_BOUND = re.compile(r"(?:>=?\s*|={0,2}\s*)([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?:\.\..*)?")
_COSTS = ("step_us", "observed_step_us")


def futile_budgets(config: "Config", document: Document) -> Iterator[Problem]:
    """What to say of them, in the order of the pools and the rules."""
    for name, pool in config.pools.items():
        budget_us, hard_us = pool.step_budget_us, pool.hard_limit_us
        if budget_us is not None and hard_us is not None and hard_us <= budget_us:
            expected = f"more than step_budget_us, which is {budget_us:g}"
            yield document.problem(("pools", name, "hard_limit_us"), expected, shown(hard_us))
    for at, rule in enumerate(config.rules):
        demands = list(_demands(rule, ("rules", at, "when")))
        for name in (rule.pool, *(rule.cheapest_backend or ()), *rule.fallbacks):
            target = config.pools.get(name or "")
            if target is None or target.step_budget_us is None:
                continue
            if target.backend is not None and target.backend[0] != config.hookcost.grammar_backend:
                continue  # conditions are on what it costs elsewhere
            for location, wanted, least_us in demands:
                if least_us >= target.step_budget_us:
                    expected = f"less than the step_budget_us of pool {name}, {target.step_budget_us:g}"
                    found = f"{shown(wanted)}: no replica can hold two of these requests at once"
                    yield document.problem(location, expected, found)


def _demands(rule: "RuleConfig", location: Location) -> Iterator[tuple[Location, object, float]]:
    """Where a rule says what a step of its requests costs at the least, what it says, and that cost."""
    if isinstance(rule.when, str):
        yield location, rule.when, _least_by(rule.when)
        return
    for key, wanted in rule.when.items():
        if key in _COSTS:
            yield (*location, key), wanted, _least(wanted)
        elif key == CEL and isinstance(wanted, str):
            yield (*location, key), wanted, _least_by(wanted)


def _least(wanted: object) -> float:
    """The lower bound of a condition on a number; -inf where there is none, or the condition is no such."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
        return -math.inf
    found = _LOWER_BOUND.fullmatch(str(wanted).strip())
    return float(found[1]) if found is not None else -math.inf


def _least_by(expression: str) -> float:
    try:
        node = parse(expression)
    except CelError:
        return -math.inf  # said elsewhere
    return max([least_of(node, cost) for cost in _COSTS])
