"""One `/metrics` of many processes: counters and histograms added up, gauges by a rule for each.

What a worker that is gone had counted stays counted, so that nothing that grows ever shrinks: Prometheus would take it
for a restart of the whole. Of one that was killed that is what was seen of it last.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from gateway.workers.messages import Family

Rule = Literal["sum", "mean", "max", "min"]

RULES: dict[str, Rule] = {
    # Every worker watches every replica: each has counted all of these.
    "steplane_steps": "mean",
    "steplane_step_seconds": "mean",
    "steplane_step_duration_seconds": "mean",
    "steplane_forward_duration_seconds": "mean",
    "steplane_hook_duration_seconds": "mean",
    "steplane_feed_records": "mean",
    "steplane_feed_lost_records": "mean",
    "steplane_feed_starved_steps": "mean",
    "steplane_feed_unattributed_records": "mean",
    "steplane_breaker_transitions": "mean",
    "steplane_config_reloads": "mean",
    # Each worker's own eyes: good news of one is good news; bad news of one is news, too.
    "steplane_replica_up": "max",
    "steplane_itl_median_seconds": "max",
    "steplane_feed_source": "max",
    "steplane_feed_lag_seconds": "max",
    "steplane_replica_breaker": "max",
    "steplane_replica_resting": "max",
    "steplane_replica_warming": "max",
    "steplane_upstream_idle_limit_seconds": "min",
    "steplane_config_loaded_timestamp_seconds": "min",
    "steplane_config_last_reload_good": "min",
    "steplane_config_last_reload_timestamp_seconds": "max",
    "steplane_config_last_reload_duration_seconds": "max",
    "steplane_discovery_failing": "max",
    "steplane_queue_oldest_seconds": "max",
    "steplane_state_connected": "min",
    "steplane_state_pending_changes": "max",
    "steplane_state_latency_seconds": "max",
    # Shared, so that all say the same.
    "steplane_quarantined": "max",
    "steplane_cost_book_signatures": "max",
    "steplane_build_info": "max",
    "process_start_time_seconds": "min",
    "process_max_fds": "min",
}
"""By metric; what isn't named is added up."""

_GROWING = frozenset(("counter", "histogram", "summary"))

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Sum:
    """A metric being put together. Samples keep the order in which they came."""

    family: Family
    samples: dict[_Key, float] = field(default_factory=dict)
    exemplars: dict[_Key, tuple[dict[str, str], float, float]] = field(default_factory=dict)


class Merged:
    """What all processes have counted, those that are gone included. `seen` and `gone` name them by any key.

    May be used by several threads: with a thousand replicas, putting all together takes a good part of a second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[list[Family], int]] = {}
        self._gone: dict[str, _Sum] = {}

    def seen(self, process: int, families: list[Family], beside: int = 1) -> None:
        """The metrics of a process as they are now. beside: how many of its kind there are, itself included."""
        with self._lock:
            self._seen[process] = families, beside

    def gone(self, process: int) -> None:
        """It has ended: what it counted is kept, what it showed is not."""
        with self._lock:
            families, beside = self._seen.pop(process, ([], 1))
            for family in families:
                if family.type in _GROWING:
                    _add(self._gone, family, _rule_of(family), beside)

    def families(self) -> list[Family]:
        """All together."""
        sums: dict[str, _Sum] = {}
        with self._lock:
            seen = list(self._seen.values())
            for each in self._gone.values():
                _add(sums, _family_of(each), "sum", 1)
        for families, beside in seen:
            for family in families:
                _add(sums, family, _rule_of(family), beside)
        return [_family_of(each) for each in sums.values()]


def _rule_of(family: Family) -> Rule:
    return RULES.get(family.name, "sum")


def _add(sums: dict[str, _Sum], family: Family, rule: Rule, beside: int) -> None:
    into = sums.get(family.name)
    if into is None:
        into = sums[family.name] = _Sum(family)
    samples, put, divisor = into.samples, _PUT[rule], float(beside) if rule == "mean" else 1.0
    for at, (name, labels, value) in enumerate(family.samples):
        key = name, tuple(labels.items())
        known = samples.get(key)
        samples[key] = value / divisor if known is None else put(known, value / divisor)
        exemplar = family.exemplars.get(at)
        if exemplar is not None and (key not in into.exemplars or into.exemplars[key][2] < exemplar[2]):
            into.exemplars[key] = exemplar


def _family_of(each: _Sum) -> Family:
    family = each.family
    samples: Iterable[tuple[str, dict[str, str], float]] = (
        (name, dict(labels), value) for (name, labels), value in each.samples.items()
    )
    exemplars = {at: each.exemplars[key] for at, key in enumerate(each.samples) if key in each.exemplars}
    return Family(family.name, family.documentation, family.type, list(samples), exemplars)


def _plus(known: float, value: float) -> float:
    return known + value


_PUT: dict[Rule, Callable[[float, float], float]] = {"sum": _plus, "mean": _plus, "max": max, "min": min}
