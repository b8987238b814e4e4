"""One page's document made of those of all workers: what each has its own part of is put together, by its name. Pure.

Steps are told to every worker alike, and what is quarantined is shared: of these the first one's word is taken.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from gateway.control.dashboard.history import first_byte_quantiles
from gateway.control.tally import TTFT_BUCKETS_S

_SUMS = ("in_flight", "waiting", "per_s", "per_minute", "failed", "spills", "rejects", "booked")
_LARGEST = ("available", "oldest_s", "itl_p50_us", "itl_p99_us")
_LATEST_ERRORS = 8
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
        "offenders": {key: _offender(parts) for key, parts in _by_key(documents, "offenders")},
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


def merge_replica_histories(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Their replicas' last minute, of which every worker is told alike."""
    return {name: max(parts, key=len) for name, parts in _by_key(documents, "replica_history")}


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
    return merged | _first_bytes(parts)


def _replica(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged = dict(parts[0])
    for name in ("in_flight", "waiting", "per_s", "booked"):
        merged[name] = _sum([part[name] for part in parts])
    for name in ("itl_p50_us", "itl_p99_us"):
        merged[name] = max((part[name] for part in parts if part[name] is not None), default=None)
    kinds = dict.fromkeys(kind for part in parts for kind in part["errors"])
    merged["errors"] = {kind: sum(part["errors"].get(kind, 0) for part in parts) for kind in kinds}
    errors = [error for part in parts for error in part["last_errors"]]
    merged["last_errors"] = sorted(errors, key=lambda error: -error["at"])[:_LATEST_ERRORS]
    return merged | _first_bytes(parts)


def _first_bytes(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each worker has timed its own requests."""
    ttft = [sum(column) for column in zip_longest(*[part["ttft"] for part in parts], fillvalue=0)]
    p50_s, p99_s = first_byte_quantiles(ttft, TTFT_BUCKETS_S)
    return {"ttft": ttft, "ttft_p50_s": p50_s, "ttft_p99_s": p99_s}


def _offender(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What requests look like, and whose they are, may be known to one worker alone."""
    seen = next((part for part in parts if part["looks"] is not None), parts[0])
    merged = {name: seen[name] for name in ("looks", "predicted_us", "predicted_ms")}
    return parts[0] | merged | {"tenant": next((part["tenant"] for part in parts if part["tenant"]), None)}


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
