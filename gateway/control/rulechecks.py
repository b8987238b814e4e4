"""What is wrong with the rules of a configuration, and which of them can't take a request.

Whether the pools that they name exist is checks.py's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.control.document import Document, Location
from gateway.control.problem import Problem, shown
from gateway.routing.conditions import ConditionError
from gateway.routing.router import DEFAULT_RULE
from gateway.routing.rule import CEL, Rule, compile_when
from gateway.routing.variables import VARIABLES

if TYPE_CHECKING:
    from gateway.control.config import Config
    from gateway.control.ruleconfig import RuleConfig


def check_rules(config: "Config", document: Document) -> Iterator[Problem]:
    """All that keeps the rules from being used."""
    names: dict[str, int] = {}
    for at, rule in enumerate(config.rules):
        location: Location = ("rules", at)
        if rule.name in names:
            found = f"{rule.name!r}, as in rules[{names[rule.name]}]"
            yield document.problem((*location, "name"), "a name of its own for each rule", found)
        elif rule.name == DEFAULT_RULE and (rule.when or rule.schedule is not None or rule.weight < 100):
            hint = "that name is kept for what no other rule takes"
            yield document.problem(
                (*location, "name"), "another name for a rule with conditions", shown(rule.name), hint
            )
        names.setdefault(rule.name, at)
        yield from _conditions(rule, location, document)
        yield from _targets(rule, location, document)
        yield from _keys(rule, config, location, document)


def _conditions(rule: "RuleConfig", location: Location, document: Document) -> Iterator[Problem]:
    parts = [rule.when] if isinstance(rule.when, str) else [{key: wanted} for key, wanted in rule.when.items()]
    for part in parts:
        try:
            compile_when(part)
        except ConditionError as error:
            place = (*location, "when") if isinstance(part, str) else (*location, "when", error.key, *error.path)
            unknown = error.key not in VARIABLES and error.key != CEL
            found = shown(error.found) if error.quoted else str(error.found)
            if unknown:
                found = "an unknown condition"
            yield document.problem(place, error.expected, found, error.hint, at_key=unknown)


def _targets(rule: "RuleConfig", location: Location, document: Document) -> Iterator[Problem]:
    seen = {rule.pool, *(rule.cheapest_backend or ())}
    for at, fallback in enumerate(rule.fallbacks):
        if fallback in seen:
            yield document.problem((*location, "fallbacks", at), "each pool once", shown(fallback))
        seen.add(fallback)
    if rule.shadow is not None and rule.shadow.pool in seen:
        expected = "another pool than those that the requests themselves go to"
        yield document.problem((*location, "shadow", "pool"), expected, shown(rule.shadow.pool))
    if rule.sticky is not None and rule.weight == 100:
        hint = "say which percentage: weight: 10"
        yield document.problem((*location, "sticky"), "a weight below 100 beside it", shown(rule.sticky), hint)


def _keys(rule: "RuleConfig", config: "Config", location: Location, document: Document) -> Iterator[Problem]:
    """A pool's key is what its engines are shown; a rule that sets another would send both."""
    for name in ("authorization", "x-api-key"):
        for pool in (rule.pool, *(rule.cheapest_backend or ()), *rule.fallbacks):
            if name in rule.set_headers and pool in config.pools and config.pools[pool].api_key:
                found = f"one, and pool {pool!r} has an api_key"
                yield document.problem((*location, "set_headers", name), "no key, or none of the pool", found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A rule before others: one that wants more keys than another can't take all that the other takes."""

    rule: Rule
    keys: frozenset[str]


def unreachable_rules(config: "Config", document: Document) -> Iterator[Problem]:
    """Rules whose requests all go to one before them, as far as that can be told."""
    seen: list[_Seen] = []
    for at, part in enumerate(config.rules):
        try:
            rule = part.compiled()
        except ConditionError:
            continue
        keys = frozenset(condition.key for condition in rule.conditions)
        before = next((each.rule for each in seen if each.keys <= keys and each.rule.takes_all_of(rule)), None)
        if before is None:
            seen.append(_Seen(rule, keys))
            continue
        why = "takes all that it takes" if before.conditions else "has no conditions and takes every request"
        expected = f"a rule that can match: {before.name!r} before it {why}"
        hint = f"move it above {before.name!r}"
        yield document.problem(("rules", at, "name"), expected, shown(rule.name), hint)
