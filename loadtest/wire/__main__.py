"""`python -m loadtest.wire`: CPU time per request and per SSE chunk, for Steplane beside its peers.

Owns the command line of the bench. Exit status: 0 measured, 1 a gateway gave errors or did not start, 2 not possible
here.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from loadtest.wire import driver, report
from loadtest.wire.contenders import CONTENDERS, ROOT, Contender
from loadtest.wire.rounds import ContenderError, Plan, Sample, measure
from loadtest.wire.workload import KINDS

_BUILD = ROOT / ".build"
_QUICK = {"rounds": 3, "seconds": 0.7}
_FULL = {"rounds": 9, "seconds": 1.5}
_QUICK_KINDS = ("plain", "schema", "paced", "chunk")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.wire", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer rounds and kinds, for iterating")
    parser.add_argument("--rounds", type=int, help="times each gateway is measured (default 9, with --quick 3)")
    parser.add_argument("--seconds", type=float, help="length of one run (default 1.5, with --quick 0.7)")
    parser.add_argument("--kinds", help=f"comma-separated, of: {', '.join(kind.name for kind in KINDS)}")
    parser.add_argument(
        "--only", help=f"comma-separated, of: {', '.join(each.name for each in CONTENDERS)} (default: no peers)"
    )
    parser.add_argument("--peers", action="store_true", help="measure the LLM routers of PyPI too; installs them")
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


def _present(contenders: Sequence[Contender], install: bool) -> list[Contender]:
    """The contenders that can run here; of the others it is said how to get them."""
    present = []
    for contender in contenders:
        reason = contender.missing()
        if reason and install and contender.install:
            _say(f"installing {contender.version()}")
            contender.install()
            reason = contender.missing()
        if reason:
            _say(f"left out: {reason}")
        else:
            present.append(contender)
    return present


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
    default = [each.name for each in CONTENDERS if options.peers or not each.peer]
    names = _chosen(options.only, [each.name for each in CONTENDERS], default, "gateway")
    contenders = _present([each for each in CONTENDERS if each.name in names], install=options.peers)
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
    except (driver.DriverError, ContenderError) as error:
        _say(f"bench-wire: {error}")
        return 2
    rows = report.summarise(samples, plan.kinds, yardstick)
    versions = {each.name: each.version() for each in contenders}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report.document(rows, samples, plan, versions), indent=1) + "\n")
    print(report.markdown(rows, plan.kinds, yardstick))
    _say(f"figures: {options.json}")
    measured = {row.contender for row in rows}
    return 1 if any(row.errors for row in rows) or any(each.name not in measured for each in contenders) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _on_sigterm)
    sys.exit(main())
