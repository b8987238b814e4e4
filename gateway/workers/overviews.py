"""One page's document made of those of all workers: what each has its own part of is put together, by its name. Pure.

Steps are told to every worker alike, and what is quarantined is shared: of these the first one's word is taken.
"""

from collections.abc import Iterable, Sequence
from typing import Any

_SUMS = ("in_flight", "waiting", "per_s", "per_minute", "failed", "spills", "rejects", "budget_us")
_LARGEST = ("available", "oldest_s", "ttft_p50_s", "ttft_p99_s", "itl_p50_us", "itl_p99_us")
_ROW_SUMS = ("requests", "failed", "spills", "rejects", "in_flight", "waiting", "booked_us")
_LEVELS = ("ok", "warn", "bad")


def merge_overviews(documents: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The sections of the answers to `/api/v1/overview`."""
    first = documents[0]
    about = first["gateway"]["about"]
    clients = sum(each["gateway"]["about"]["clients"] for each in documents)
    return {
        "gateway": {"about": about | {"clients": clients, "workers": len(documents)}},
        "status": {"line": _status([each["status"]["line"] for each in documents])},
        "pools": {name: _pool(parts) for name, parts in _by_key(documents, "pools")},
        "replicas": {name: _replica(parts) for name, parts in _by_key(documents, "replicas")},
        "offenders": {key: parts[0] for key, parts in _by_key(documents, "offenders")},
        "configuration": first["configuration"],
        "rules": {name: _rule(parts) for name, parts in _by_key(documents, "rules")},
    }


def merge_histories(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Their pools' last minute and hour; seconds are put together from the newest on."""
    columns: list[str] = documents[0]["columns"]
    added = [columns.index(name) for name in _ROW_SUMS]
    merged: dict[str, Any] = {}
    for pool, parts in _by_key(documents, "history"):
        merged[pool] = {kind: _rows([part[kind] for part in parts], added) for kind in ("seconds", "minutes")}
    return merged


def merge_steps(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answers to `/api/v1/quarantine/{key}/steps`: whose request it was is known to one worker alone."""
    steps = [step for document in documents for step in document["steps"]]
    return {"steps": sorted(steps, key=lambda step: str(step["at"]), reverse=True)}


def _by_key(documents: Sequence[dict[str, Any]], section: str) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    keys = dict.fromkeys(key for document in documents for key in document[section])
    for key in keys:
        yield key, [document[section][key] for document in documents if key in document[section]]


def _status(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What is wrong with any of them, each thing once and since the first has known it."""
    found: dict[str, dict[str, Any]] = {}
    for each in (finding for line in lines for finding in line["findings"]):
        known = found.get(each["key"])
        if known is None or each["since"] < known["since"]:
            found[each["key"]] = each
    level = max((line["level"] for line in lines), key=_LEVELS.index)
    return {"level": level, "findings": sorted(found.values(), key=lambda each: -_LEVELS.index(each["level"]))}


def _pool(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(parts[0])
    for name in _SUMS:
        merged[name] = _sum([part[name] for part in parts])
    for name in _LARGEST:
        merged[name] = max((part[name] for part in parts if part[name] is not None), default=None)
    hook_us, budget_us = merged["hook_us"], merged["budget_us"]
    merged["budget_use"] = None if hook_us is None or not budget_us else round(hook_us / budget_us, 4)
    return merged


def _replica(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(parts[0])
    for name in ("in_flight", "per_s", "booked"):
        merged[name] = _sum([part[name] for part in parts])
    if merged["booked"] is not None:
        merged["booked"] = round(merged["booked"] / len(parts), 3)
    kinds = dict.fromkeys(kind for part in parts for kind in part["errors"])
    merged["errors"] = {kind: sum(part["errors"].get(kind, 0) for part in parts) for kind in kinds}
    return merged


def _rule(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] | {"hits": sum(part["hits"] for part in parts)}


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 4) if known else None


def _rows(parts: Sequence[list[list[float | None]]], added: Sequence[int]) -> list[list[float | None]]:
    longest = max(parts, key=len)
    merged = [list(row) for row in longest]
    for part in parts:
        if part is longest:
            continue
        for row, other in zip(reversed(merged), reversed(part), strict=False):
            for at in added:
                row[at] = _sum([row[at], other[at]])
    return merged
