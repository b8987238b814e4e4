"""What the parts of a configuration demand of each other: names that must exist, be unique, or lead somewhere.

Works on a configuration whose shape is right already; returns findings, decides nothing.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.control.budgetchecks import futile_budgets
from gateway.control.document import Document, Location
from gateway.control.problem import Problem, in_order, shown
from gateway.control.rulechecks import check_rules, unreachable_rules

if TYPE_CHECKING:
    from gateway.control.config import Config

_SPILLS = {"when_unavailable": "let the last pool reject", "when_full": "let the last pool wait"}
"""Keys of a pool that may lead to another, and what ends a way that leads back."""


def cross_check(config: "Config", document: Document) -> tuple[list[Problem], list[Problem]]:
    """All errors and all warnings, each in the order of the file."""
    errors = [*_pool_names(config, document), *_spill_cycles(config, document), *_listeners(config, document)]
    errors += [*_replicas(config, document), *check_rules(config, document), *_quarantine_stays(config, document)]
    warnings = [*unreachable_rules(config, document), *_unused_pools(config, document)]
    warnings += [*_empty_pools(config, document), *futile_budgets(config, document), *_never_full(config, document)]
    return in_order(errors), in_order(warnings)


def _pool_references(config: "Config") -> Iterator[tuple[Location, str]]:
    yield ("default_pool",), config.default_pool
    for at, rule in enumerate(config.rules):
        if rule.pool is not None:
            yield ("rules", at, "pool"), rule.pool
        for place, rival in enumerate(rule.cheapest_backend or ()):
            yield ("rules", at, "cheapest_backend", place), rival
        for place, fallback in enumerate(rule.fallbacks):
            yield ("rules", at, "fallbacks", place), fallback
        if rule.shadow is not None:
            yield ("rules", at, "shadow", "pool"), rule.shadow.pool
    for name in config.pools:
        for key in _SPILLS:
            spill = _spill(config, name, key)
            if spill is not None:
                yield ("pools", name, key, "spill"), spill
    if config.quarantine_pool is not None:
        yield ("breaker", "quarantine_pool"), config.quarantine_pool


def _pool_names(config: "Config", document: Document) -> Iterator[Problem]:
    for location, name in _pool_references(config):
        if name not in config.pools:
            yield document.problem(location, f"one of the pools {', '.join(config.pools)}", shown(name))


def _spill_cycles(config: "Config", document: Document) -> Iterator[Problem]:
    for key, hint in _SPILLS.items():
        reported: set[str] = set()
        for start in config.pools:
            chain = [start]
            while (target := _spill(config, chain[-1], key)) is not None and target not in chain:
                chain.append(target)
            if target is None or target in reported:
                continue
            circle = chain[chain.index(target) :]
            reported.update(circle)
            way = " → ".join([*circle, target])
            yield document.problem(("pools", circle[-1], key, "spill"), "a pool that does not lead back", way, hint)


def _spill(config: "Config", pool: str, key: str) -> str | None:
    if pool not in config.pools:
        return None
    spill: str | None = getattr(config.pools[pool], key).spill
    return spill


def _quarantine_stays(config: "Config", document: Document) -> Iterator[Problem]:
    """What is quarantined must not come back to those that it is kept away from because there is much of it."""
    name = config.quarantine_pool
    if name is not None and _spill(config, name, "when_full") is not None:
        found = "the pool of what is quarantined"
        yield document.problem(("pools", name, "when_full"), "wait", found, "leave when_full out")


def _never_full(config: "Config", document: Document) -> Iterator[Problem]:
    """Pools that would spill if they were full, and never are."""
    for name, pool in config.pools.items():
        admission = pool.admission
        limited = pool.step_budget_us is not None or admission.max_in_flight or admission.max_structured
        if pool.when_full.spill is not None and not limited:
            found = "a pool that admits everything at once"
            hint = "give it a step_budget_us, or admission: {max_in_flight: N}"
            yield document.problem(("pools", name, "when_full"), "a pool that can be full", found, hint)


def _listeners(config: "Config", document: Document) -> Iterator[Problem]:
    if config.admin.listen.port and config.admin.listen in [each.address for each in config.listen]:
        yield document.problem(("admin", "listen"), "another address than that of listen", str(config.admin.listen))


def _replicas(config: "Config", document: Document) -> Iterator[Problem]:
    own = {str(listener.address): "listen" for listener in config.listen}
    own[str(config.admin.listen)] = "admin.listen"
    names: dict[str, str] = {}
    urls: dict[str, str] = {}
    for pool_name, pool in config.pools.items():
        if not pool.replicas and pool.discover is None:
            missing = "replicas" not in pool.model_fields_set
            expected = "a value, for this key or discover is required" if missing else "at least 1 entry, or discover"
            found = "nothing" if missing else "an empty list"
            yield document.problem(("pools", pool_name, "replicas"), expected, found)
        for at, replica in enumerate(pool.replicas):
            location: Location = ("pools", pool_name, "replicas", at)
            here = f"pools.{pool_name}.replicas[{at}]"
            url = str(replica.url)
            if url in urls:
                yield document.problem(location, "each replica once", f"{url}, as in {urls[url]}")
            elif replica.label in names:
                found = f"{replica.label!r}, as in {names[replica.label]}"
                yield document.problem((*location, "name"), "a name of its own for each replica", found)
            if replica.url.authority in own:
                found = f"{url}, where this gateway has its {own[replica.url.authority]}"
                yield document.problem((*location, "url"), "the address of an engine", found)
            urls.setdefault(url, here)
            names.setdefault(replica.label, here)


def _unused_pools(config: "Config", document: Document) -> Iterator[Problem]:
    used = {name for _, name in _pool_references(config)}
    for name in config.pools:
        if name not in used:
            found = "a pool that no rule, spill or default_pool names"
            yield document.problem(("pools", name), "a pool that takes requests", found, at_key=True)


def _empty_pools(config: "Config", document: Document) -> Iterator[Problem]:
    """The default pool, where it is empty until something is found, and sends nobody elsewhere meanwhile."""
    pool = config.pools.get(config.default_pool)
    if pool is not None and not pool.replicas and pool.discover is not None and pool.when_unavailable.spill is None:
        hint = "name one replica beside discover, or another pool with when_unavailable: {spill: POOL}"
        found = "only what discover finds: nothing at first"
        where = ("pools", config.default_pool, "discover")
        yield document.problem(where, "a default pool that can serve at once", found, hint)
