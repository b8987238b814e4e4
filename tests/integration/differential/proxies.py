"""HAProxy and Steplane as processes in front of a recorder each.

Owns their configuration and their ends. Both give up on a silent client after SILENCE_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.wire.process import rss_bytes, stop
from loadtest.wire.rounds import free_port

from .message import Message
from .recorder import HEALTH, Recorder

STEPLANE = "Steplane"
SILENCE_S = 1
PATIENCE_S = 20.0
REPOSITORY = Path(__file__).resolve().parents[3]
HAPROXY = shutil.which("haproxy", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))
_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
_NUMBER = re.compile(rb"^x-number: (\d+)\r$", re.MULTILINE)

_HAPROXY = """\
global
  nbthread 1
  maxconn 1000
defaults
  mode http
  option http-keep-alive
  retries 0
  timeout connect 5s
  timeout client {silence}s
  timeout http-request {silence}s
  timeout http-keep-alive {silence}s
  timeout server {silence}s
frontend clients
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  server recorder 127.0.0.1:{upstream}
"""
_STEPLANE = """\
listen: 127.0.0.1:{port}
admin: {{listen: 127.0.0.1:{admin}}}
default_pool: all
control_paths: pass
timeouts: {{header_s: {silence}, body_s: {silence}, keepalive_s: {silence}}}
pools:
  all:
    engine: other
    feed: "off"
    health: {{path: {health}, interval_s: 600}}
    replicas: [{{url: "http://127.0.0.1:{upstream}"}}]
"""


class ProxyError(AssertionError):
    """A proxy ended, hung or wrote an exception to its log."""


@dataclass(slots=True)
class Proxy:
    """One proxy that runs, and its upstream."""

    name: str
    port: int
    recorder: Recorder
    process: subprocess.Popen[bytes]
    log: Path
    _read_log: int = field(default=0)

    def rss_mib(self) -> float:
        """Resident memory."""
        return rss_bytes(self.process.pid) / 2**20

    def check(self) -> None:
        """Raises ProxyError if it has ended, or said something that it should not have had to say."""
        if self.process.poll() is not None:
            raise ProxyError(f"{self.name} ended with status {self.process.returncode}: {self.said()[-3000:]}")
        size = self.log.stat().st_size
        if size > self._read_log:
            said, self._read_log = self.said()[self._read_log :], size
            if "Traceback" in said or "_failed" in said.replace("attempt_failed", ""):
                raise ProxyError(f"{self.name} wrote: {said[-3000:]}")

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(errors="replace")


@dataclass(frozen=True, slots=True)
class Understood:
    """What came of one stream of bytes: the upstream's messages, at the place of the answer that each one got.

    None stands for an answer of the proxy's own. `lost`: messages whose answer the client never saw.
    """

    at: list[Message | None]
    lost: list[Message]
    answers: bytes


async def understood(proxy: Proxy, parts: Sequence[bytes], expected: int | None) -> Understood:
    """Send `parts` one by one and read until the proxy closes, or until so many answers have come.

    Raises ProxyError if what Steplane has sent on cannot be read; where HAProxy's cannot, that message is nobody's.
    """
    proxy.recorder.taken()
    async with asyncio.timeout(PATIENCE_S):
        answers = await _ask(proxy.port, parts, expected)
        while proxy.recorder.in_the_middle:  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0.001)
    problems, proxy.recorder.problems = proxy.recorder.problems, []
    if problems and proxy.name == STEPLANE:
        raise ProxyError(f"{proxy.name} sent on what cannot be read in one way: {problems}")
    came = dict(proxy.recorder.taken())
    at: list[Message | None] = []
    for status, lines in _ANSWER.findall(answers):
        if status.startswith(b"1"):
            continue
        number = _NUMBER.search(lines)
        at.append(came.pop(int(number[1])) if number else None)
    return Understood(at, list(came.values()), answers)


class _Client(asyncio.Protocol):
    """Collects what comes until the connection ends; unlike a StreamReader it keeps what came before a reset."""

    def __init__(self) -> None:
        self.received = b""
        self.closed = False
        self.changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.changed.set()

    @property
    def answers(self) -> int:
        return sum(not status.startswith(b"1") for status, _ in _ANSWER.findall(self.received))


async def _ask(port: int, parts: Sequence[bytes], expected: int | None) -> bytes:
    transport, client = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    try:
        for part in parts:
            if client.closed:
                break
            transport.write(part)
            await asyncio.sleep(0)
        while not client.closed and (expected is None or client.answers < expected):
            client.changed.clear()
            await client.changed.wait()
    finally:
        transport.abort()
    while not client.closed:
        client.changed.clear()
        await client.changed.wait()
    return client.received


@contextlib.asynccontextmanager
async def both(folder: Path, python: str = sys.executable) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """HAProxy and Steplane, ready. `python`: the interpreter that has Steplane; by default this one, in this tree."""
    assert HAPROXY is not None
    async with contextlib.AsyncExitStack() as stack:
        recorders = [Recorder(), Recorder()]
        for recorder in recorders:
            await recorder.start()
            stack.push_async_callback(recorder.stop)
        haproxy, steplane = folder / "haproxy.cfg", folder / "gateway.yaml"
        ports = [free_port() for _ in recorders]
        haproxy.write_text(_HAPROXY.format(port=ports[0], upstream=recorders[0].port, silence=SILENCE_S))
        steplane.write_text(
            _STEPLANE.format(
                port=ports[1],
                admin=free_port(),
                upstream=recorders[1].port,
                silence=SILENCE_S,
                health=HEALTH.decode(),
            )
        )
        here = [] if python == sys.executable else ["-P"]
        commands = [
            [HAPROXY, "-db", "-f", str(haproxy)],
            [python, *here, "-m", "gateway.cli", "serve", "-c", str(steplane)],
        ]
        proxies = [
            await _started(stack, name, commands[at], ports[at], recorders[at], folder / f"{name}.log")
            for at, name in enumerate(("HAProxy", STEPLANE))
        ]
        yield proxies[0], proxies[1]


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


async def _started(
    stack: contextlib.AsyncExitStack, name: str, command: list[str], port: int, recorder: Recorder, log: Path
) -> Proxy:
    process = _start(command, log)
    stack.callback(stop, process)
    proxy = Proxy(name, port, recorder, process, log)
    deadline = time.monotonic() + 60
    hello = b"GET /hello HTTP/1.1\r\nhost: h\r\n\r\n"
    while True:
        proxy.check()
        with contextlib.suppress(OSError):
            if (await understood(proxy, [hello], 1)).at[:1] != [None]:
                return proxy
        if time.monotonic() > deadline:
            raise ProxyError(f"{name} does not serve: {proxy.said()[-2000:]}")
        await asyncio.sleep(0.05)
