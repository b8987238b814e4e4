"""What a reload costs who waits: how late the event loop is while a large configuration is taken over.

Run by `make bench-reload`: a gateway in this process with as many replicas and rules as asked for, each replica an
address of one process that answers health checks. The pages that monitoring reads are read; then the file is rewritten
and loaded again in three ways. Beside the wall clock, which tells of the machine and its neighbours as well, stand the
CPU time of the loop's longest turn, and how late the loop of another process was meanwhile that does nothing at all.
"""

import argparse
import asyncio
import contextlib
import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path

import uvloop
import yaml

from gateway.app import Gateway
from gateway.control.config import load_config
from gateway.control.logs import configure_logs
from gateway.memory import settle_memory

_EVERY_S = 0.001
_POOLS = 10
_VARIANTS = 3
_PAGES = ("/metrics", "/api/v1/replicas", "/api/v1/overview")


@dataclass(frozen=True, slots=True)
class _Turn:
    """From one look at the clock to the next: when, how late it was, and what the loop's thread computed, in ms."""

    ended_s: float
    late_ms: float
    cpu_ms: float


def _address(at: int, variant: int) -> str:
    """Of a replica; another `variant` has a tenth of other ones."""
    return f"127.{1 + variant if at % 10 == 0 else 1}.{at // 250}.{1 + at % 250}"


def _document(replicas: int, rules: int, port: int, variant: int) -> str:
    """A configuration; another `variant` has other budgets and rules, and a tenth of other replicas."""
    pools = {
        f"p{pool}": {
            "engine": "other",
            "replicas": [
                {"name": f"r{at}", "url": f"http://{_address(at, variant)}:{port}"}
                for at in range(pool * replicas // _POOLS, (pool + 1) * replicas // _POOLS)
            ],
            "step_budget_us": 1000 + variant,
            "health": {"interval_s": 60},
        }
        for pool in range(_POOLS)
    }
    return yaml.safe_dump(
        {
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "default_pool": "p0",
            "logs": {"level": "warning"},
            "pools": pools,
            "rules": [
                {
                    "name": f"r{at}",
                    "when": {"model": f"m{at}-{variant}*", "step_us": f">{at + 1}"},
                    "pool": f"p{at % _POOLS}",
                }
                for at in range(rules)
            ],
        }
    )


async def _engines(replicas: int) -> None:
    """All replicas: says its port, then answers whatever it is asked until it is ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    first = await asyncio.start_server(answer, _address(0, 0), 0)
    port = first.sockets[0].getsockname()[1]
    others = sorted(
        {_address(at, variant) for variant in range(_VARIANTS) for at in range(replicas)} - {_address(0, 0)}
    )
    await asyncio.start_server(answer, others, port)
    print(port, flush=True)
    await asyncio.Event().wait()


async def _watch(turns: list[_Turn]) -> None:
    """How much later than wanted the loop comes round, and what it computed meanwhile."""
    while True:
        began, computed = time.perf_counter(), time.thread_time()
        await asyncio.sleep(_EVERY_S)
        ended = time.perf_counter()
        turns.append(_Turn(ended, (ended - began - _EVERY_S) * 1e3, (time.thread_time() - computed) * 1e3))


async def _during(work: Awaitable[object]) -> list[_Turn]:
    turns: list[_Turn] = []
    watch = asyncio.create_task(_watch(turns))
    await work
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    return turns


def _said(name: str, turns: list[_Turn], beside: list[_Turn]) -> str:
    late = sorted(turn.late_ms for turn in turns)
    p99 = late[min(len(late) - 1, int(0.99 * len(late)))]
    longest = max(turn.cpu_ms for turn in turns)
    idle = max((turn.late_ms for turn in beside if turns[0].ended_s <= turn.ended_s <= turns[-1].ended_s), default=0.0)
    return (
        f"{name:<30} late: p99 {p99:6.2f}, most {late[-1]:6.2f} ms; longest turn {longest:5.2f} ms of CPU; "
        f"a process that does nothing: late by {idle:5.2f} ms"
    )


async def _idle() -> None:
    """Does nothing until its input ends, then says how late it was and when, by the machine's monotonic clock."""
    for turn in await _during(asyncio.to_thread(sys.stdin.read)):
        print(turn.ended_s, turn.late_ms)


def _read(address: tuple[str, int], path: str) -> None:
    connection = http.client.HTTPConnection(*address)
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 200, f"{path}: {response.status}"


async def _bench(replicas: int, rules: int) -> int:
    async with _beside("--engines", "--replicas", str(replicas)) as engines, _beside("--idle") as idle:
        assert engines.stdout is not None
        port = int(await engines.stdout.readline())
        measured = await _measured(replicas, rules, port)
        told, _ = await idle.communicate(b"")
    beside = [_Turn(float(ended_s), float(late_ms), 0.0) for ended_s, late_ms in map(bytes.split, told.splitlines())]
    print(f"{replicas} replicas, {rules} rules: how late the event loop is meanwhile")
    for name, turns, more in measured:
        print(f"{_said(name, turns, beside)}{more}")
    return 0


@contextlib.asynccontextmanager
async def _beside(*role: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process of this module."""
    command = [sys.executable, "-m", "loadtest.bench_reload", *role]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _measured(replicas: int, rules: int, port: int) -> list[tuple[str, list[_Turn], str]]:
    """What was done, the loop's turns meanwhile, and what is to be said besides."""
    measured: list[tuple[str, list[_Turn], str]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gateway.yaml"
        file.write_text(_document(replicas, rules, port, 0))
        config = load_config(file)
        configure_logs(config.logs)
        gateway = Gateway(config)
        await gateway.start()
        try:
            await gateway.wait_all_up()
            settle_memory()
            measured.append(("nothing to do", await _during(asyncio.sleep(2.0)), ""))
            measured += [
                (path, await _during(asyncio.to_thread(_read, gateway.admin_address, path)), "") for path in _PAGES
            ]
            for variant, what in ((0, "nothing changed"), (1, "rules, budgets, a tenth new"), (2, "the same again")):
                file.write_text(_document(replicas, rules, port, variant))
                turns = await _during(gateway.reloading.reload("bench"))
                report = gateway.reloading.reloads.last
                assert report is not None
                assert report.outcome.is_good, report.why
                took = f"; took {report.took_s * 1e3:.0f} ms, {len(report.changes)} changes"
                measured.append((what, turns, took))
        finally:
            await gateway.close()
    return measured


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--rules", type=int, default=500)
    parser.add_argument("--engines", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--idle", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engines:
        uvloop.run(_engines(arguments.replicas))
    if arguments.idle:
        uvloop.run(_idle())
        return 0
    return uvloop.run(_bench(arguments.replicas, arguments.rules))


if __name__ == "__main__":
    sys.exit(main())
