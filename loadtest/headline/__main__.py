"""`make bench`: a mixed pool, sglang-router, smg and Steplane before the same simulated replicas and traffic."""

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from loadtest.breaker.site import feed_of
from loadtest.headline.fronts import MIXED, OURS, installed_peers
from loadtest.headline.measure import Fleet, measure, simulators
from loadtest.headline.outcome import Repetition, conclude
from loadtest.live import progress
from loadtest.traffic.scenario import Scenario, load

_REPLICAS = 4


def main() -> int:
    """Prints the table and the goals; 1 where one was missed, but not with --quick."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.headline", description=__doc__)
    parser.add_argument(
        "--scenario", type=Path, default=Path("isolation"), help="a file, or a shipped name (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="visits to each front with each phase (%(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="whole runs; 3 show whether ratios agree (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="only the mixed pool and Steplane")
    parser.add_argument("--quick", action="store_true", help="short slices, without the peers: a look, no proof")
    parser.add_argument("--out", type=Path, default=Path(".build/bench"), help="folder for results (%(default)s)")
    parser.add_argument("--picture", type=Path, help="where the picture goes; without it none is drawn")
    arguments = parser.parse_args()
    scenario = load(arguments.scenario).model_copy(update={"rounds": arguments.rounds})
    saturated = load(Path("saturated"))
    if arguments.quick:
        scenario = scenario.model_copy(update={"rounds": 1, "duration_s": 6.0, "warm_s": 1.0})
        saturated = saturated.model_copy(update={"rounds": 1, "duration_s": 4.0})
    peers, missing = ([], []) if arguments.quick or arguments.no_peers else installed_peers()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = [MIXED, *peers, OURS]
    done = uvloop.run(_repeat(scenario, saturated, names, arguments.out, arguments.repeat))
    return conclude(done, arguments.out, arguments.picture, missing, forgive=arguments.quick)


async def _repeat(scenario: Scenario, saturated: Scenario, names: list[str], out: Path, times: int) -> list[Repetition]:
    done = []
    for turn in range(1, times + 1):
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            folder = Path(name)
            async with progress(Console(stderr=True)) as show, simulators(_REPLICAS, folder) as urls:
                fleet = Fleet(tuple(urls), tuple(map(feed_of, urls)), "llguidance")
                isolation = await measure(fleet, names, scenario, folder, out / f"headline-{turn}.json", show)
                full = await measure(fleet, [MIXED, OURS], saturated, folder, out / f"saturated-{turn}.json", show)
        done.append(Repetition(isolation, full))
    return done


if __name__ == "__main__":
    sys.exit(main())
