"""Sends what is planned, when it is due, and waits for nobody: an open loop.

Owns the connections to one target and the list of outcomes. Judges nothing.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from loadtest.client.exchange import Connection
from loadtest.client.outcome import Outcome
from loadtest.traffic.plan import Planned
from loadtest.traffic.scenario import Scenario

_CONNECT_S = 10.0
_SLOW_BUFFER_BYTES = 2048
_IDLE_S = 3.0
"""An unused connection is not used again after this; uvicorn closes its own after 5 s."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked. `key`: sent as `Authorization: Bearer …` if there is one."""

    name: str
    url: str
    key: str = ""


class TargetError(Exception):
    """A target's URL cannot be used."""


class OpenLoop:
    """One slice of a scenario at one target. `outcomes` grows while it runs: for whoever shows progress."""

    def __init__(self, scenario: Scenario, target: Target) -> None:
        parts = urlsplit(target.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TargetError(f"target {target.name!r}: {target.url!r} is no http:// or https:// URL with a host")
        self._scenario = scenario
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        credentials = f"authorization: Bearer {target.key}\r\n" if target.key else ""
        self._prefix = parts.path.rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        self._fields = f"host: {host}\r\ncontent-type: application/json\r\n{credentials}content-length: "
        self._idle: list[tuple[float, Connection]] = []
        self._running: dict[asyncio.Task[None], Connection | None] = {}
        self.outcomes: list[Outcome] = []

    @property
    def in_flight(self) -> int:
        """Requests that have no end yet."""
        return len(self._running)

    async def run(self, planned: Sequence[Planned]) -> float:
        """Send all of it and wait for the answers, `settle_s` at most; when its time began, on the monotonic clock."""
        loop = asyncio.get_running_loop()
        clock = time.monotonic  # uvloop's own counts milliseconds
        began = clock() + 0.05
        try:
            for each in planned:
                if (wait_s := began + each.due_s - clock()) > 0:
                    await asyncio.sleep(wait_s)
                outcome = Outcome(each, began + each.due_s, reply=bytearray() if each.schema is not None else None)
                self.outcomes.append(outcome)
                task = loop.create_task(self._ask(outcome, clock))
                self._running[task] = None
                task.add_done_callback(self._ended)
            if self._running:
                await asyncio.wait(list(self._running), timeout=self._scenario.settle_s)
        finally:
            for task in list(self._running):
                task.cancel()
            await asyncio.gather(*list(self._running), return_exceptions=True)
            for _, connection in self._idle:
                connection.leave()
            self._idle.clear()
        return began

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request's task failed", "exception": error}
            )

    async def _ask(self, outcome: Outcome, clock: Callable[[], float]) -> None:
        traffic = self._scenario.classes[outcome.planned.kind]
        try:
            slow = traffic.read_bytes_per_s is not None
            connection = await (self._slow_connection(clock) if slow else self._connection(clock))
        except (OSError, TimeoutError) as error:
            outcome.ended, outcome.error = clock(), f"cannot connect: {error or type(error).__name__}"
            return
        body = outcome.planned.body
        line = f"POST {self._prefix}{outcome.planned.path} HTTP/1.1\r\n"
        request = f"{line}{self._fields}{len(body)}\r\n\r\n".encode("latin-1") + body
        done = asyncio.Event()
        connection.ask(request, outcome, traffic.read_bytes_per_s, done.set)
        try:
            await asyncio.wait_for(done.wait(), traffic.leave_after_s)
        except TimeoutError:
            outcome.left = True
            connection.leave()
            await done.wait()
        except asyncio.CancelledError:
            outcome.error = f"no end within {self._scenario.settle_s:g} s"
            connection.leave()
            raise
        if connection.reusable and connection.is_open:
            self._idle.append((clock(), connection))
        else:
            connection.leave()

    async def _connection(self, clock: Callable[[], float]) -> Connection:
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_open and clock() - since < _IDLE_S:
                return connection
            connection.leave()
        opening = asyncio.get_running_loop().create_connection(
            lambda: Connection(clock), self._host, self._port, ssl=self._tls
        )
        _, connection = await asyncio.wait_for(opening, _CONNECT_S)
        return connection

    async def _slow_connection(self, clock: Callable[[], float]) -> Connection:
        """For a slow reader: with a small receive buffer, or the kernel would read for it."""
        loop = asyncio.get_running_loop()
        (family, kind, protocol, _, address), *_ = await loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        )
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER_BYTES)
            await asyncio.wait_for(loop.sock_connect(made, address), _CONNECT_S)
            name = self._host if self._tls is not None else None
            opening = loop.create_connection(lambda: Connection(clock), sock=made, ssl=self._tls, server_hostname=name)
            _, connection = await asyncio.wait_for(opening, _CONNECT_S)
        except BaseException:
            made.close()
            raise
        return connection
