"""What people who look at the dashboard cost the data plane: the gateway's CPU with no tab open, with one, with many.

Run by `make bench-dashboard`: a running `steplane up` with its three simulated replicas under a steady trickle of plain
and structured requests. Tabs are connections that read the live stream as a browser does. Rounds are interleaved, so
that what neighbours do to the machine is the same for all; the figure is the gateway's own CPU time, of one core.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from loadtest.breaker.site import answers, process
from loadtest.wire.process import own_cpu_ns
from loadtest.wire.rounds import free_port

_SETTLE_S = 2.0
_CLIENTS = 4
_PAUSE_S = 0.05
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_PLAIN: dict[str, Any] = {
    "model": "steplane-simulator",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 16,
}
_STRUCTURED = _PLAIN | {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": _SCHEMA}}}


async def _ask(session: aiohttp.ClientSession, url: str) -> None:
    """One client: a request, a pause, the next."""
    number = 0
    while True:
        number += 1
        body = _STRUCTURED if number % 3 == 0 else _PLAIN
        async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
            await reply.read()
        await asyncio.sleep(_PAUSE_S)


async def _look(session: aiohttp.ClientSession, admin: str, seen: list[int]) -> None:
    """One tab. `seen`: what is added to its one number are the bytes of events."""
    async with session.get(f"{admin}/api/v1/events") as reply:
        async for data in reply.content.iter_any():
            seen[0] += len(data)


@contextlib.asynccontextmanager
async def _running(*tasks: Any) -> AsyncIterator[None]:
    begun = [asyncio.create_task(task) for task in tasks]
    try:
        yield
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def _measure(pid: int, seconds: float) -> float:
    """The process' CPU, in percent of one core."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(_SETTLE_S)
    began_s, before = loop.time(), own_cpu_ns(pid)
    await asyncio.sleep(seconds)
    return (own_cpu_ns(pid) - before) / 1e7 / (loop.time() - began_s)


async def _bench(tabs: int, rounds: int, seconds: float) -> int:
    port, admin_port = free_port(), free_port()
    url, admin = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}"
    command = [sys.executable, "-m", "gateway.cli", "up", "--port", str(port), "--admin-port", str(admin_port)]
    found: dict[int, list[float]] = {0: [], 1: [], tabs: []}
    size: dict[int, list[int]] = {count: [0] for count in found}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with process(command, log) as gateway:
            await answers(f"{admin}/readyz", gateway, log)
            connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                _running(*[_ask(session, url) for _ in range(_CLIENTS)]),
            ):
                for _ in range(rounds):
                    for count, cpu in found.items():
                        async with _running(*[_look(session, admin, size[count]) for _ in range(count)]):
                            cpu.append(await _measure(gateway.pid, seconds))
    print(f"CPU of the gateway, in percent of one core; medians of {rounds} times {seconds:g} s")
    nobody = statistics.median(found[0])
    for count, cpu in found.items():
        per_s = size[count][0] / (rounds * (seconds + _SETTLE_S)) / max(1, count)
        shown = f"{statistics.median(cpu):5.2f} ({min(cpu):.2f} to {max(cpu):.2f})"
        more = "" if not count else f", {statistics.median(cpu) - nobody:+.2f}; {per_s / 1e3:.1f} kB a second for each"
        print(f"{count:3} tabs: {shown}{more}")
    return 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    return uvloop.run(_bench(arguments.tabs, arguments.rounds, arguments.seconds))


if __name__ == "__main__":
    sys.exit(main())
