"""`python -m loadtest.streams`: idle SSE streams by the thousand through one gateway.

Owns the command line, the order of what is done and what must hold: the gateway stays below a limit of memory, no
stream breaks, and a replica hears within 50 ms that a client has left. Exit status: 0 it held, 1 it did not, 2 not
possible here.
"""

import argparse
import asyncio
import contextlib
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from loadtest.breaker.site import SiteError, answers
from loadtest.streams.clients import Clients
from loadtest.streams.engine import Engines
from loadtest.wire import process
from loadtest.wire.contenders import CONTENDERS, ROOT, Site
from loadtest.wire.rounds import free_port

_REPLICAS = 4
_HEAR_WITHIN_MS = 50.0
_ALONE = 50
"""Clients that leave one by one, before all others at once."""
_SPARE_FILES = 1100
"""Beside the two of each stream, one at each end of the gateway, which keeps a thousand for other things."""
_WARM_STREAMS = 100


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.streams", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=10_000, help="at once (%(default)d)")
    parser.add_argument("--seconds", type=float, default=20.0, help="over which each gets a comment (%(default)g)")
    parser.add_argument("--max-rss-mib", type=float, default=1024.0, help="of the gateway (%(default)g)")
    parser.add_argument("--gateway", default="Steplane", help="a gateway of the wire bench (%(default)s)")
    return parser.parse_args(argv)


def _fitting(streams: int) -> int:
    """So many streams, or as many as this process and the gateway may have files open for; raises that if permitted."""
    wanted = 2 * streams + _SPARE_FILES
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(streams, (max(soft, hard) - _SPARE_FILES) // 2)


def _say(line: str) -> None:
    print(line, flush=True)


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "-"
    ordered = sorted(values)
    p99 = ordered[len(ordered) - 1 - len(ordered) // 100]
    return f"p50 {statistics.median(ordered):.2f}, p99 {p99:.2f}, worst {ordered[-1]:.2f} ms"


async def _until_quiet(engines: Engines, left: Mapping[int, float]) -> list[float]:
    """How long it took each replica to hear of its client's leaving, in ms. Raises TimeoutError."""
    async with asyncio.timeout(60):
        while any(number not in engines.left_at for number in left):  # noqa: ASYNC110 (thousands of events)
            await asyncio.sleep(0.02)
    return [(engines.left_at[number] - at) * 1e3 for number, at in left.items()]


async def _bench(options: argparse.Namespace, folder: Path) -> list[str]:
    """What did not hold."""
    engines = Engines()
    await engines.start(_REPLICAS)
    cores = sorted(os.sched_getaffinity(0))
    contender = next(each for each in CONTENDERS if each.name.lower() == options.gateway.lower())
    site = Site(folder, free_port(), free_port(), tuple(f"{host}:{port}" for host, port in engines.addresses))
    gateway = process.start(contender.command(site), cores[0], folder / "log", ROOT)
    try:
        await answers(f"http://127.0.0.1:{site.admin_port}/readyz", gateway, folder / "log")
        os.sched_setaffinity(0, {cores[-1]})
        return await _measure(options, engines, Clients(site.port), gateway.pid)
    finally:
        process.stop(gateway)
        engines.stop()


async def _measure(options: argparse.Namespace, engines: Engines, clients: Clients, pid: int) -> list[str]:
    wrong = []
    await clients.open(_WARM_STREAMS)
    floor = process.rss_bytes(pid)
    began = time.monotonic()
    await clients.open(options.streams - _WARM_STREAMS)
    took = time.monotonic() - began
    full = process.rss_bytes(pid)
    each = (full - floor) / (options.streams - _WARM_STREAMS)
    _say(
        f"{options.streams} streams opened in {took:.1f} s; gateway {full / 2**20:.0f} MiB, {each / 1024:.1f} KiB each"
    )
    if full > options.max_rss_mib * 2**20:
        wrong.append(f"the gateway takes {full / 2**20:.0f} MiB, more than {options.max_rss_mib:g}")
    cpu = process.cpu_ns(pid)
    await engines.comment(options.seconds)
    busy = (process.cpu_ns(pid) - cpu) / 1e9 / options.seconds
    await asyncio.sleep(0.5)
    _say(f"{len(clients.delays_ms)} comments, late by {_quantiles(clients.delays_ms)}; gateway {busy:.1%} of a core")
    if len(clients.delays_ms) != options.streams:
        wrong.append(f"{options.streams} comments were sent, {len(clients.delays_ms)} came")
    alone = []
    for _ in range(_ALONE):
        alone += await _until_quiet(engines, clients.leave(1))
    _say(f"clients that left alone: the replica heard after {_quantiles(alone)}")
    if statistics.median(alone) > _HEAR_WITHIN_MS:
        wrong.append(f"replicas heard of their clients' leaving after {statistics.median(alone):.0f} ms")
    cpu = process.cpu_ns(pid)
    together = await _until_quiet(engines, clients.leave())
    spent_us = (process.cpu_ns(pid) - cpu) / 1e3 / len(together)
    _say(f"{len(together)} clients that left together: {_quantiles(together)}; {spent_us:.0f} µs of CPU each")
    _say(f"{engines.aborted} requests were aborted by their ids, too")
    if clients.broken:
        wrong.append(f"{clients.broken} streams broke")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and judge."""
    options = _parse(argv)
    known = {each.name.lower(): each for each in CONTENDERS if each.name.startswith("Steplane")}
    if options.gateway.lower() not in known:
        raise SystemExit(f"bench-streams: there is no gateway {options.gateway!r}; there are: {', '.join(known)}")
    if reason := known[options.gateway.lower()].missing():
        _say(f"bench-streams: {reason}")
        return 2
    streams = _fitting(options.streams)
    if streams < options.streams:
        _say(f"no more than {streams} of {options.streams} streams: `ulimit -Hn` permits no more open files")
        options.streams = streams
    with tempfile.TemporaryDirectory(prefix="steplane-streams-") as folder:
        try:
            wrong = uvloop.run(_bench(options, Path(folder)))
        except (SiteError, ConnectionError, TimeoutError) as error:
            wrong = [str(error) or "nothing happened for a minute"]
    for line in wrong:
        _say(f"wrong: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
