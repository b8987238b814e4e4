"""One answer of the API made of the answers of all workers. Pure.

Everything that is shared, or told by every worker alike, is taken from the first; what each worker has its own part of
is put together by its name.
"""

from collections.abc import Callable, Sequence
from typing import Any

_SUMS = frozenset(
    (
        "in_flight",
        "structured",
        "guests",
        "booked_us",
        "idle_connections",
        "step_budget_us",
        "max_in_flight",
        "max_structured",
        "waiting",
        "waiting_us",
        "admitted_per_s",
        "admitted",
        "full",
        "late",
        "left",
        "homeless",
        "size",
        "open",
        "idle",
        "connects",
        "reused",
        "connect_failed",
        "connect_timeout",
        "pool_full",
        "stale",
        "closed_idle",
        "dns",
    )
)
_GREATEST = frozenset(("oldest_s", "available", "healthy"))


def merge_pools(documents: Sequence[Any]) -> Any:
    """The answers to `/api/v1/pools` or `/api/v1/replicas`: what runs and waits is added up over the workers."""
    return _merged("", documents)


def merge_running(documents: Sequence[Any]) -> Any:
    """The answers to `/api/v1/quarantine/{key}`: what runs of it anywhere."""
    running = [each for document in documents for each in document.get("running", ())]
    return documents[0] | {"running": running}


def _merged(name: str, values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: _merged(key, [value[key] for value in values if key in value]) for key in first}
    if isinstance(first, list) and all(isinstance(each, dict) and "name" in each for each in first):
        by_name: dict[str, list[Any]] = {}
        for value in values:
            for each in value:
                by_name.setdefault(each["name"], []).append(each)
        return [_merged(name, by_name[each["name"]]) for each in first]
    put = _PUT.get(name)
    return first if put is None or first is None else put([value for value in values if value is not None])


_PUT: dict[str, Callable[[Sequence[Any]], Any]] = {
    **dict.fromkeys(_SUMS, sum),
    **dict.fromkeys(_GREATEST, max),
}
