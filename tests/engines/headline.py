"""`make bench-engines`: the headline on real SGLang replicas, two of them on the CPU with a tiny model.

Smaller than `make bench`, and rougher: the engines compute on the cores that everything else runs on.
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from loadtest.headline.fronts import MIXED, OURS, installed_peers
from loadtest.headline.measure import Fleet, measure
from loadtest.headline.outcome import Repetition, conclude
from loadtest.live import progress
from loadtest.results.run import Run
from loadtest.traffic.scenario import Scenario, load
from tests.clients.case import MODEL
from tests.engines.build import SGLANG, build_environment, build_model
from tests.engines.sglang_server import PACE_S, sglang, slow_down

_REPLICAS = 2


def main() -> int:
    """Prints the table and the goals; they are judged on simulators, so a missed one is no failure here."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.engines.headline", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=1, help="visits to each front with each phase (%(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path(".build/bench-engines"), help="folder for results (%(default)s)"
    )
    parser.add_argument("--no-peers", action="store_true", help="only the mixed pool and Steplane")
    arguments = parser.parse_args()
    build_environment(SGLANG)
    build_model(SGLANG)
    peers, missing = ([], []) if arguments.no_peers else installed_peers()
    arguments.out.mkdir(parents=True, exist_ok=True)
    scenario = load(Path("engines")).model_copy(update={"rounds": arguments.rounds, "model": MODEL})
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(sglang(f"replica-{at}")) for at in range(_REPLICAS)]
        for url in urls:
            slow_down(url, PACE_S)
        run = uvloop.run(_measure(scenario, urls, [MIXED, *peers, OURS], arguments.out))
    return conclude([Repetition(run)], arguments.out, None, missing, forgive=True)


async def _measure(scenario: Scenario, urls: list[str], names: list[str], out: Path) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with progress(Console(stderr=True)) as show:
            fleet = Fleet(tuple(urls), (), "xgrammar")
            return await measure(fleet, names, scenario, Path(folder), out / "headline-1.json", show)


if __name__ == "__main__":
    sys.exit(main())
