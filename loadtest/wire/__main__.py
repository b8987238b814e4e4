"""`python -m loadtest.wire`: CPU time per request and per SSE chunk, for Steplane beside its peers.

Owns the command line of the bench. Prints Markdown and draws a picture. Exit status: 0 measured, 1 a gateway gave
errors or did not start, 2 not possible here.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from loadtest.wire import driver, plot, report, scale, summary
from loadtest.wire.contenders import CONTENDERS, ROOT, Contender
from loadtest.wire.filling import FillingError
from loadtest.wire.rounds import ContenderError, Plan, Sample, measure
from loadtest.wire.workload import KINDS

_BUILD = ROOT / ".build"
_QUICK = {"rounds": 3, "seconds": 0.7}
_FULL = {"rounds": 7, "seconds": 1.5}
_QUICK_KINDS = ("plain", "schema", "paced", "chunk")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.wire", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer rounds and kinds, for iterating")
    parser.add_argument(
        "--rounds", type=int, help="times each gateway is measured (default 7, with --quick 3; LLM routers 2)"
    )
    parser.add_argument("--seconds", type=float, help="length of one run (default 1.5, with --quick 0.7)")
    parser.add_argument("--kinds", help=f"comma-separated, of: {', '.join(kind.name for kind in KINDS)}")
    parser.add_argument("--only", help=f"comma-separated, of: {', '.join(each.name for each in CONTENDERS)}")
    parser.add_argument("--peers", action="store_true", help="with --quick: the LLM routers of PyPI, too")
    parser.add_argument("--scale", action="store_true", help="instead: what grows with bodies, replicas and signatures")
    parser.add_argument("--png", type=Path, default=ROOT / "docs" / "img" / "bench-wire.png", help="where to draw it")
    parser.add_argument("--no-png", action="store_true", help="draw nothing")
    parser.add_argument("--json", type=Path, default=_BUILD / "bench" / "wire.json", help="where the figures go")
    return parser.parse_args(argv)


def _chosen(names: str | None, known: Sequence[str], default: Sequence[str], what: str) -> list[str]:
    if names is None:
        return list(default)
    lowered = {name.lower(): name for name in known}
    chosen = [name.strip().lower() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in lowered:
            raise SystemExit(f"bench-wire: there is no {what} {name!r}; there are: {', '.join(known)}")
    return [lowered[name] for name in chosen]


def _present(contenders: Sequence[Contender], install: bool) -> tuple[list[Contender], list[str]]:
    """The contenders that can run here; of the others why not, with how to get them."""
    present = []
    left_out = []
    for contender in contenders:
        reason = contender.missing()
        if reason and install and contender.install:
            _say(f"installing {contender.version()}")
            try:
                contender.install()
                reason = contender.missing()
            except subprocess.CalledProcessError as error:
                reason = f"{contender.version()} could not be installed: {error}"
        if reason:
            _say(f"left out: {reason}")
            left_out.append(f"{contender.name}: {reason}")
        else:
            present.append(contender)
    return present, left_out


def _on_sigterm(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signal's signature)
    """Leaves by the ordinary way, which stops the gateways."""
    raise SystemExit(128 + number)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        _say("only one core: gateways and load share it, so latencies mean little; CPU times still compare")
    size = _QUICK if options.quick else _FULL
    all_kinds = [kind.name for kind in KINDS]
    kinds = _chosen(options.kinds, all_kinds, _QUICK_KINDS if options.quick else all_kinds, "kind")
    plan = Plan(
        rounds=options.rounds or int(size["rounds"]),
        seconds=options.seconds or size["seconds"],
        kinds=tuple(kind for kind in KINDS if kind.name in kinds),
        gateway_core=cores[0],
        driver_core=cores[-1],
    )
    with_peers = options.peers or not options.quick
    default = [each.name for each in CONTENDERS if (with_peers or not each.peer) and not each.optional]
    names = _chosen(options.only, [each.name for each in CONTENDERS], default, "gateway")
    contenders, left_out = _present([each for each in CONTENDERS if each.name in names], install=with_peers)
    if options.scale:
        return _scale(plan, contenders)
    yardstick = CONTENDERS[0].name
    if yardstick not in [each.name for each in contenders]:
        _say(f"without {yardstick} there are no ratios")
    samples: list[Sample] = []
    try:
        binary = driver.build(_BUILD / "bench")
        with (
            tempfile.TemporaryDirectory(prefix="steplane-bench-") as directory,
            driver.Driver(binary, plan.driver_core, plan.replicas) as clients,
        ):
            samples.extend(measure(plan, contenders, clients, Path(directory), _say))
    except driver.DriverError as error:
        _say(f"bench-wire: {error}")
        return 2
    rows = report.summarise(samples, plan.kinds, yardstick)
    measured = {row.contender for row in rows}
    left_out += [f"{each.name}: it did not serve; see above" for each in contenders if each.name not in measured]
    versions = {each.name: each.version() for each in contenders}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report.document(rows, samples, plan, versions), indent=1) + "\n")
    print(summary.markdown(rows, yardstick, left_out))
    print(report.markdown(rows, plan.kinds, yardstick))
    _say(f"figures: {options.json}")
    if not options.no_png:
        _draw(rows, options.png)
    failed = any(row.errors for row in rows) or any(each.name not in measured for each in contenders)
    return 1 if failed else 0


def _draw(rows: Sequence[report.Row], path: Path) -> None:
    try:
        plot.draw(summary.lines(rows), path)
    except plot.PlotError as error:
        _say(f"no picture: {error}")
    else:
        _say(f"picture: {path}")


def _scale(plan: Plan, contenders: Sequence[Contender]) -> int:
    try:
        print(scale.measured(plan, contenders, driver.build(_BUILD / "bench"), _say))
    except (driver.DriverError, ContenderError, FillingError) as error:
        _say(f"bench-wire: {error}")
        return 2
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main())
