"""Servers at chosen places, names whose addresses a test decides, and a gateway in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.wire.address import Address
from gateway.wire.failure import FailureKind
from gateway.wire.limits import Timeouts
from gateway.wire.poolpolicy import PoolPolicy
from gateway.wire.upstream import Upstream
from tests.integration.wire.harness import OK, PATIENCE_S, Script, ScriptedUpstream, Wire, answering, until, wire

PATIENT = Timeouts(sweep_s=0.02, connect_s=PATIENCE_S, upstream_idle_s=PATIENCE_S)
"""Nothing that happens on the side decides a test: no connection expires or is given up."""
NAME = "replica.test"


def address(host: str, port: int) -> Address:
    if ":" in host:
        return Address(socket.AF_INET6, (host, port, 0, 0))
    return Address(socket.AF_INET, (host, port))


@dataclass
class Names:
    """A resolver. `answers`: the hosts that every name stands for now, or why it stands for none."""

    answers: Sequence[str] | OSError
    asked: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """A lookup takes until this is set, as it is from the start."""

    def __post_init__(self) -> None:
        self.gate.set()

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        self.asked += 1
        await self.gate.wait()
        if isinstance(self.answers, OSError):
            raise self.answers
        return [address(each, port) for each in self.answers]


NO_SUCH_NAME = OSError(-2, "Name or service not known")


class Placed(ScriptedUpstream):
    """A scripted upstream at a place of the test's choice."""

    def __init__(self, script: Script, where: dict[str, Any]) -> None:
        super().__init__(script)
        self._where = where

    async def start(self) -> None:
        if "path" in self._where:
            self._server = await asyncio.start_unix_server(self._accepted, **self._where)
        else:
            self._server = await asyncio.start_server(self._accepted, limit=1 << 22, **self._where)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for _ in range(3):  # a connection kept ready may have been accepted just now: let its script begin, to be ended
            await asyncio.sleep(0)
        await super().stop()


@contextlib.asynccontextmanager
async def placed(script: Script | None = None, **where: Any) -> AsyncIterator[Placed]:
    """A server at `host` and `port` (0: any), or at `path`; it answers everything with OK unless it has a script."""
    if "path" not in where:
        where = {"host": "127.0.0.1", "port": 0, **where}
    server = Placed(script or answering(OK), where)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def shared_port(*hosts: str) -> int:
    """A port that is free on all of these."""
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            port = 0
            try:
                for host in hosts:
                    family = socket.AF_INET6 if ":" in host else socket.AF_INET
                    tried = stack.enter_context(socket.socket(family))
                    tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    tried.bind((host, port))
                    port = tried.getsockname()[1]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    raise AssertionError(f"no port is free on all of {hosts}")


def has_ipv6() -> bool:
    try:
        shared_port("::1")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def black_hole(host: str, port: int) -> Iterator[None]:
    """A place where connections are neither accepted nor refused: its backlog is full, so that SYNs are dropped."""
    with contextlib.ExitStack() as stack:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = stack.enter_context(socket.create_server((host, port), family=family, backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket(listener.family))
            filler.setblocking(False)
            filler.connect_ex((host, port))
        yield


def connect(
    gateway: Wire,
    port: int,
    host: str = "127.0.0.1",
    *,
    policy: PoolPolicy | None = None,
    resolver: Names | None = None,
    path: str = "",
    tls: Any = None,
) -> Upstream:
    """Connections to one server, to which the gateway sends everything from now on."""
    pool = Upstream(
        host, port, gateway.server.timeouts, policy=policy or PoolPolicy(), resolver=resolver, path=path, tls=tls
    )
    gateway.server.upstreams.add(pool)
    gateway.handler.upstreams = [pool]
    return pool


def kinds(gateway: Wire) -> list[FailureKind]:
    return [failure.kind for failure in gateway.handler.failures]


__all__ = ["OK", "PATIENCE_S", "Wire", "answering", "until", "wire"]
