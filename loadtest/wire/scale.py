"""What a request costs as things grow: its body, the number of replicas.

Owns the sizes and the fit of a line to them. The runs are those of rounds.py.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from loadtest.wire.contenders import Contender, Site
from loadtest.wire.driver import Driver
from loadtest.wire.report import Row, summarise
from loadtest.wire.rounds import Plan, measure
from loadtest.wire.workload import KINDS, Kind

_SIZES_KIB = (1, 16, 64, 256, 1024)
_REPLICAS = (1, 100, 1000)
_BESIDE = 2
"""Replicas of Steplane's other two pools."""
_MEET_ALL_S = 0.8
"""In so long every replica has been asked and has a connection."""
_Say = Callable[[str], None]


def measured(plan: Plan, contenders: Sequence[Contender], binary: Path, say: _Say) -> str:
    """Measures the contenders that are no LLM routers, and says it in Markdown."""
    chosen = [each for each in contenders if not each.peer]
    plan = replace(plan, rounds=min(plan.rounds, 3), seconds=min(plan.seconds, 1.0))
    return "\n".join([_by_size(plan, chosen, binary, say), _by_replicas(plan, chosen, binary, say)])


def _by_size(plan: Plan, contenders: Sequence[Contender], binary: Path, say: _Say) -> str:
    kinds = tuple(Kind(f"{size}", f"{size} KiB", 4, body_bytes=size * 1024) for size in _SIZES_KIB)
    rows = _rows(replace(plan, kinds=kinds), contenders, binary, say)
    parts = [
        "### CPU µs per request by the size of its body",
        "",
        f"| gateway | {' | '.join(f'{size:,} KiB' for size in _SIZES_KIB)} | µs per KiB |",
        "|---" * (len(_SIZES_KIB) + 2) + "|",
    ]
    for contender in contenders:
        costs = [row.cpu_us for row in rows if row.contender == contender.name]
        if len(costs) == len(_SIZES_KIB):
            shown = " | ".join(f"{cost:,.1f}" for cost in costs)
            parts.append(f"| {contender.name} | {shown} | {slope(_SIZES_KIB, costs):.2f} |")
    return "\n".join([*parts, ""])


def _by_replicas(plan: Plan, contenders: Sequence[Contender], binary: Path, say: _Say) -> str:
    plan = replace(plan, kinds=(KINDS[0],), replicas=max(_REPLICAS) + _BESIDE, warm_s=_MEET_ALL_S)
    crowds = [_with_replicas(each, count) for each in contenders for count in _REPLICAS]
    by_name = {row.contender: row.cpu_us for row in _rows(plan, crowds, binary, say)}
    parts = [
        "### CPU µs per small chat request by the number of replicas",
        "",
        f"| gateway | {' | '.join(f'{count:,}' for count in _REPLICAS)} |",
        "|---" * (len(_REPLICAS) + 1) + "|",
    ]
    for contender in contenders:
        costs = [by_name.get(_with_replicas(contender, count).name) for count in _REPLICAS]
        shown = " | ".join("-" if cost is None else f"{cost:.1f}" for cost in costs)
        parts.append(f"| {contender.name} | {shown} |")
    return "\n".join([*parts, ""])


def _with_replicas(contender: Contender, count: int) -> Contender:
    """The contender with so many of the replicas; nobody listens where their step feeds would be."""

    def command(site: Site) -> list[str]:
        return contender.command(replace(site, replicas=site.replicas[: count + _BESIDE], feed="off"))

    return replace(contender, name=f"{contender.name}, {count} replicas", command=command)


def _rows(plan: Plan, contenders: Sequence[Contender], binary: Path, say: _Say) -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="steplane-bench-") as directory,
        Driver(binary, plan.driver_core, plan.replicas) as clients,
    ):
        samples = list(measure(plan, contenders, clients, Path(directory), say))
    return summarise(samples, plan.kinds, contenders[0].name)


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The least-squares growth of the costs with the sizes."""
    return statistics.linear_regression(sizes, costs).slope
