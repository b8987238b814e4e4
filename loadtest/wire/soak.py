"""`python -m loadtest.wire.soak`: an hour at half the peak rate, in which nothing may grow and nothing may fail.

Owns the measurement of the peak, the slices in which memory and sockets are read, and what must hold: no error, no
growth of memory by the line fitted to it, and after a rest no more sockets than before. Exit status: 0 it held, 1 it
did not, 2 not possible here.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.wire import driver, process
from loadtest.wire.contenders import CONTENDERS, ROOT, Site, on_loopback
from loadtest.wire.rounds import ContenderError, Gateway, free_port, running
from loadtest.wire.workload import KINDS, Kind, write_requests

_PEAK_S = 3.0
_SLICE_S = 10.0
_REPLICAS = 4
_WARM_SHARE = 0.2
"""Of the slices, which are left out of the line: caches fill."""
_REST_S = 15.0
"""Idle connections to replicas are closed within it."""
_CONNECTIONS = 32
_STREAMS = Kind("soaked", "streams", 16, chunks=50, interval_us=20_000)


@dataclass(frozen=True, slots=True)
class Slice:
    """Some seconds of the soak. `at_s`: since its beginning."""

    at_s: float
    requests: int
    errors: int
    first_error: str
    p99_us: float
    rss_bytes: int
    sockets: int


def sockets(pid: int) -> int:
    """Open sockets of a process."""
    count = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(descriptor).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def growth_bytes(slices: Sequence[Slice]) -> tuple[float, float]:
    """By the line fitted to the memory of all slices but the first: per hour, and over the time that was fitted."""
    fitted = slices[int(len(slices) * _WARM_SHARE) :]
    if len(fitted) < 2:
        return 0.0, 0.0
    slope = statistics.linear_regression([each.at_s for each in fitted], [each.rss_bytes for each in fitted]).slope
    return slope * 3600, slope * (fitted[-1].at_s - fitted[0].at_s)


def _say(line: str) -> None:
    print(line, flush=True)


def _soak(options: argparse.Namespace, clients: driver.Driver, gateway: Gateway, folder: Path) -> list[str]:
    """What did not hold."""
    pid = gateway.process.pid
    plain, streams = folder / "plain", folder / "streams"
    write_requests(KINDS[0], "bench", plain)
    write_requests(_STREAMS, "bench", streams)
    before = sockets(pid)
    peak = clients.run(gateway.port, plain, connections=_CONNECTIONS, seconds=_PEAK_S).rate
    rate = options.share * peak
    _say(f"peak {peak:,.0f} requests/s; {options.seconds:g} s at {rate:,.0f}/s, every tenth slice of streams")
    slices: list[Slice] = []
    began = time.monotonic()
    while (at := time.monotonic() - began) < options.seconds:
        if len(slices) % 10 == 9:
            load = clients.run(gateway.port, streams, connections=_STREAMS.connections, seconds=_SLICE_S)
        else:
            load = clients.run(gateway.port, plain, connections=_CONNECTIONS, seconds=_SLICE_S, rate=rate)
        p99 = load.latency_us.p99 if load.latency_us else 0.0
        taken = Slice(at, load.requests, load.errors, load.first_error, p99, process.rss_bytes(pid), sockets(pid))
        slices.append(taken)
        _say(
            f"{taken.at_s:6.0f} s  {taken.requests:8,} requests  p99 {taken.p99_us / 1e3:6.2f} ms  "
            f"{taken.rss_bytes / 2**20:6.1f} MiB  {taken.sockets} sockets  {taken.errors} errors"
        )
    deadline = time.monotonic() + _REST_S
    while (left := sockets(pid)) > before and time.monotonic() < deadline:
        time.sleep(0.2)
    return _verdict(options, slices, before, left)


def _verdict(options: argparse.Namespace, slices: Sequence[Slice], before: int, left: int) -> list[str]:
    wrong = []
    hourly, over_all = growth_bytes(slices)
    errors = sum(each.errors for each in slices)
    requests = sum(each.requests for each in slices)
    grown = f"{hourly / 2**20:+.2f} MiB an hour ({over_all / 2**20:+.2f} MiB over the time measured)"
    _say(f"{requests:,} requests, {errors} errors; memory {grown}; {left} sockets after a rest, {before} before")
    if errors:
        first = next(each.first_error for each in slices if each.errors)
        wrong.append(f"{errors} errors, the first: {first}")
    if over_all > options.max_growth_mib * 2**20:
        wrong.append(f"the memory grew by {over_all / 2**20:.1f} MiB, more than {options.max_growth_mib:g}")
    if left > before:
        wrong.append(f"{left} sockets are open after a rest, {before} were before")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Soak and judge."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.wire.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (%(default)g)")
    parser.add_argument("--share", type=float, default=0.5, help="of the peak rate (%(default)g)")
    parser.add_argument("--max-growth-mib", type=float, default=4.0, help="of memory, by the fitted line (%(default)g)")
    options = parser.parse_args(argv)
    contender = next(each for each in CONTENDERS if each.name == "Steplane")
    if reason := contender.missing():
        _say(f"soak-wire: {reason}")
        return 2
    cores = sorted(os.sched_getaffinity(0))
    try:
        with (
            tempfile.TemporaryDirectory(prefix="steplane-soak-") as directory,
            driver.Driver(driver.build(ROOT / ".build" / "bench"), cores[-1], _REPLICAS) as clients,
        ):
            folder = Path(directory)
            site = Site(folder / "site", free_port(), free_port(), on_loopback(clients.ports))
            with running(contender, site, cores[0]) as gateway:
                wrong = _soak(options, clients, gateway, folder)
    except (driver.DriverError, ContenderError) as error:
        _say(f"soak-wire: {error}")
        return 2
    for line in wrong:
        _say(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
