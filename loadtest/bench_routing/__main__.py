"""`make bench-routing`: what affinity saves, beside balancing by load and beside the router that does the same."""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from loadtest.bench_routing import grammars, prefixes

_FEWER_COMPILES = 3.0
_AS_GOOD = 0.9


def main() -> int:
    """Prints two tables; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench_routing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests: a look, no proof")
    parser.add_argument("--only", choices=("grammars", "prefixes"), help="one of the two parts")
    parser.add_argument("--rate", type=float, default=90.0, help="requests a second with a grammar (%(default)g)")
    arguments = parser.parse_args()
    share = 4 if arguments.quick else 1
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-routing-") as name:
        folder = Path(name)
        if arguments.only != "prefixes":
            missed += _grammars(4500 // share, arguments.rate, folder)
        if arguments.only != "grammars":
            missed += _prefixes(4000 // share, folder)
    for each in missed:
        print(f"MISSED: {each}")
    return 1 if missed and not arguments.quick else 0


def _grammars(requests: int, rate: float, folder: Path) -> list[str]:
    least, affine = asyncio.run(grammars.compare(("least_requests", "grammar_affinity"), requests, rate, folder))
    print(f"\n{requests} requests, {least.seen} schemas by Zipf's law, {rate:g} a second, 4 replicas\n")
    print("| balance | cold compiles | TTFT p50 ms | p90 | p99 | failed |\n|---|---|---|---|---|---|")
    for run in (least, affine):
        quantiles = " | ".join(f"{run.quantile(share):.1f}" for share in (0.5, 0.9, 0.99))
        print(f"| {run.balance} | {run.compiles} | {quantiles} | {run.failed} |")
    ratio = least.compiles / max(affine.compiles, 1)
    print(f"\nGrammar affinity compiles {ratio:.2f} times fewer (goal: {_FEWER_COMPILES:g}).")
    missed = [f"{ratio:.2f} times fewer cold compiles"] if ratio < _FEWER_COMPILES else []
    if affine.quantile(0.99) > least.quantile(0.99):
        missed.append(f"p99 TTFT {affine.quantile(0.99):.1f} ms, {least.quantile(0.99):.1f} by least requests")
    return missed + [f"{run.failed} requests failed by {run.balance}" for run in (least, affine) if run.failed]


def _prefixes(requests: int, folder: Path) -> list[str]:
    balances = ["least_requests", "prefix_affinity"]
    try:
        prefixes.install_router()
        balances.append(prefixes.CACHE_AWARE)
    except subprocess.CalledProcessError as error:
        print(f"\nsglang-router could not be installed from PyPI, so nothing is compared with it: {error}")
    runs = asyncio.run(prefixes.compare(balances, requests, folder))
    print(f"\n{requests} requests of growing conversations, 12 system prompts, 4 replicas\n")
    print("| balance | prompt found in cache | requests by replica | failed | s |\n|---|---|---|---|---|")
    for run in runs:
        loads = ", ".join(map(str, run.loads))
        print(f"| {run.balance} | {run.hit_rate:.1%} | {loads} | {run.failed} | {run.seconds:.1f} |")
    missed = [f"{run.failed} requests failed by {run.balance}" for run in runs if run.failed]
    if len(runs) > 2:
        ratio = runs[1].hit_rate / runs[2].hit_rate
        print(f"\nPrefix affinity finds {ratio:.0%} of what {prefixes.CACHE_AWARE} does (goal: {_AS_GOOD:.0%}).")
        missed += [f"{ratio:.0%} of its hit rate"] if ratio < _AS_GOOD else []
    return missed


if __name__ == "__main__":
    sys.exit(main())
