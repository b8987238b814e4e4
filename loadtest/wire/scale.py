"""What a request costs as things grow: its body, the number of replicas, the cost book; and what idle replicas cost.

Owns the sizes and the fit of a line to them. The runs are those of rounds.py.
"""

import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from loadtest.wire import process
from loadtest.wire.contenders import Contender, Site, on_loopback
from loadtest.wire.driver import Driver
from loadtest.wire.filling import Filler
from loadtest.wire.report import Row, summarise
from loadtest.wire.rounds import Plan, free_port, measure, run, running
from loadtest.wire.workload import KINDS, Kind, write_requests

_SIZES_KIB = (1, 16, 64, 256, 1024)
_REPLICAS = (1, 100, 1000)
_BESIDE = 2
"""Replicas of Steplane's other two pools."""
_SIGNATURES = 100_000
_KNOWN = re.compile(r"^steplane_cost_book_signatures ([0-9.e+]+)$", re.MULTILINE)
_WARM_S = 0.3
_MEET_ALL_S = 1.5
"""In so long every replica has been asked and has a connection."""
_SETTLE_S = 45.0
"""So long after the start, replicas that turned out to have no metrics are hardly asked for them any more."""
_IDLE_S = 20.0
_OFTEN_S = 1.0
"""Steplane's usual interval between two looks at a replica's health."""
_Say = Callable[[str], None]


def measured(plan: Plan, contenders: Sequence[Contender], binary: Path, say: _Say) -> str:
    """Measures the contenders that are no LLM routers, and says it in Markdown."""
    chosen = [each for each in contenders if not each.peer]
    plan = replace(plan, rounds=min(plan.rounds, 3), seconds=min(plan.seconds, 1.0))
    parts = [_by_size(plan, chosen, binary, say), _by_replicas(plan, chosen, binary, say)]
    for each in chosen:
        if each.name == "Steplane":
            parts += [_idle(plan, each, binary, say), _by_signatures(plan, each, binary, say)]
    return "\n".join(parts)


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
    plan = replace(plan, kinds=(KINDS[0],), replicas=max(_REPLICAS) + _BESIDE, warm_s=_MEET_ALL_S, settle_s=_SETTLE_S)
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


def _idle(plan: Plan, contender: Contender, binary: Path, say: _Say) -> str:
    """What it takes to keep an eye on replicas that nobody asks for anything."""
    count = max(_REPLICAS)
    with (
        tempfile.TemporaryDirectory(prefix="steplane-bench-") as directory,
        Driver(binary, plan.driver_core, count) as clients,
    ):
        replicas = on_loopback(clients.ports)
        site = Site(Path(directory) / "idle", free_port(), free_port(), replicas, feed="off", health_s=_OFTEN_S)
        with running(contender, site, plan.gateway_core) as gateway:
            say(f"waiting for {count:,} replicas to be known")
            time.sleep(_SETTLE_S)
            before = process.cpu_ns(gateway.process.pid)
            time.sleep(_IDLE_S)
            spent_us = (process.cpu_ns(gateway.process.pid) - before) / 1e3
    each_us = spent_us / _IDLE_S / count
    return (
        f"{contender.name} with {count:,} idle replicas, each asked for its health every {_OFTEN_S:g} s: "
        f"{each_us:.0f} µs of CPU per replica and second, {spent_us / 1e6 / _IDLE_S:.1%} of a core.\n"
    )


def _by_signatures(plan: Plan, contender: Contender, binary: Path, say: _Say) -> str:
    """Two gateways side by side: one with an empty cost book, one with a full one."""
    kinds = (KINDS[0], KINDS[1])
    costs: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="steplane-bench-") as directory,
        Driver(binary, plan.driver_core, plan.replicas) as clients,
        Filler() as idler,
        Filler() as filler,
        ExitStack() as stack,
    ):
        folder = Path(directory)
        pair = []
        for name, each in (("empty", idler), ("full", filler)):  # with the same pools and rules
            fill = (each.replica_port, each.feed_port)
            site = Site(folder / name, free_port(), free_port(), on_loopback(clients.ports), feed="off", fill=fill)
            pair.append(stack.enter_context(running(contender, site, plan.gateway_core)))
            admin_port = site.admin_port
        say(f"filling a cost book with {_SIGNATURES:,} signatures")
        filler.fill(pair[1].port, _SIGNATURES)
        known = _signatures(admin_port)
        for kind in kinds:
            write_requests(kind, "127.0.0.1:8080", folder / kind.name)
        for _ in range(plan.rounds):
            for kind in kinds:
                for name, gateway in zip(("empty", "full"), pair, strict=True):
                    run(clients, gateway, kind, folder / kind.name, _WARM_S)
                    spent_us, _, load = run(clients, gateway, kind, folder / kind.name, plan.seconds)
                    costs.setdefault((kind.name, name), []).append(spent_us / max(load.requests, 1))
    parts = [
        "### CPU µs per request by the signatures in the cost book",
        "",
        f"| {contender.name} | 0 | {known:,} |",
        "|---|---|---|",
    ]
    for kind in kinds:
        empty, full = (statistics.median(costs[kind.name, name]) for name in ("empty", "full"))
        parts.append(f"| {kind.title} | {empty:.1f} | {full:.1f} |")
    return "\n".join([*parts, ""])


def _signatures(admin_port: int) -> int:
    """How many the gateway says that it knows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=30) as answer:
        found = _KNOWN.search(answer.read().decode())
    return int(float(found[1])) if found else 0


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
