"""How the page is told of the configuration: what is loaded, what the last reload came to, and what the rules take."""

from collections import Counter
from typing import Any

from gateway.control.context import AdminContext
from gateway.control.inturns import giving_way
from gateway.control.reloads import Report
from gateway.control.secrets import shown_config


def loaded_item(context: AdminContext) -> dict[str, Any]:
    """Where the configuration came from, since when it is in force, the last reload, and the last one that failed."""
    reloads = context.reloader.reloads
    return {
        "source": None if reloads.source is None else str(reloads.source),
        "files": len(context.config.files),
        "loaded_at": round(reloads.loaded_at, 1),
        "reloads": sum(reloads.outcomes.values()),
        "warnings": [str(each) for each in context.config.warnings],
        "last_reload": _shown(reloads.last),
        "last_failed": _shown(reloads.last_failed),
        "failing_since": reloads.failing_since,
    }


def _shown(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "at": round(report.at, 1),
        "outcome": report.outcome.value,
        "trigger": report.trigger,
        "why": None if report.outcome.is_good else report.why,
        "problems": [str(each) for each in report.problems],
        "changes": [str(each) for each in report.changes[:20]],
        "needs_restart": [*report.restart],
    }


async def rule_items(context: AdminContext) -> dict[str, Any]:
    """In their order; a rule that can't match says why. In turns, since there may be many."""
    hits: Counter[str] = Counter()
    for (_, name, _, _), count in context.tally.finished_requests().items():
        hits[name] += count
    config = context.config
    dead = {each.key.partition("]")[0]: each.said for each in config.warnings}
    shown: dict[str, Any] = {}
    async for at, rule in giving_way(list(enumerate(context.router.rules))):
        if rule.name in shown:  # the last one, which is there without being written, may be written, too
            continue
        part = config.rules[at] if at < len(config.rules) and config.rules[at].name == rule.name else None
        when = None if part is None else shown_config(part.when, config.origins, ("rules", at, "when"))
        to = ", ".join(rule.cheapest) or rule.pool or "refused"
        shown[rule.name] = {
            "at": at,
            "when": when or None,
            "to": to,
            "fallbacks": [*rule.fallbacks],
            "hits": hits[rule.name],
            "dead": dead.get(f"rules[{at}"),
        }
    return shown
