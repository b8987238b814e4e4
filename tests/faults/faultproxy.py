"""A TCP proxy that does to a connection what networks and dying processes do.

Stands between a gateway and one engine. Knows nothing of HTTP: it counts bytes and writes. Each connection gets the
fault that `choose` gives when it is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a connection; the defaults are nothing at all.

    refuses:        it is reset as soon as it is accepted.
    request_bytes:  it is reset once the engine has got so many bytes.
    response_bytes: it ends once the gateway has got so many bytes: with a reset if `resets`, else in good order.
    deaf:           what the gateway sends goes nowhere, and nothing comes back: a black hole.
    mute:           the engine gets its requests, and nothing comes back: half open.
    delay_s:        each write is late by so much.
    lost:           share of writes that are lost for good, which ends a TCP connection with a reset.
    """

    refuses: bool = False
    request_bytes: int | None = None
    response_bytes: int | None = None
    resets: bool = False
    deaf: bool = False
    mute: bool = False
    delay_s: float = 0.0
    lost: float = 0.0


NONE = Fault()


class FaultProxy:
    """`faulty` counts the connections that something was done to."""

    def __init__(self, seed: int = 0) -> None:
        self.choose: Callable[[], Fault] = lambda: NONE
        self.port = 0
        self.faulty = 0
        self._target = 0
        self._rng = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def start(self, target: int) -> None:
        """Listen, on the same port as before, and connect to `target` on the loopback."""
        self._target = target
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and end those that there are."""
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._serve(reader, writer, self.choose())
        finally:
            self._running.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
        if fault != NONE and not fault.lost:
            self.faulty += 1
        if fault.refuses:
            _reset(writer)
            return
        if fault.deaf:
            while await reader.read(1 << 16):
                pass
            return
        engine_reader, engine = await asyncio.open_connection("127.0.0.1", self._target)
        there = asyncio.create_task(self._pump(reader, engine, fault, fault.request_bytes))
        limit = 0 if fault.mute else fault.response_bytes
        back = asyncio.create_task(self._pump(engine_reader, writer, fault, limit))
        try:
            done, _ = await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            if fault.mute and back in done:
                await there  # until the gateway gives up
            elif (fault.lost or fault.resets or there in done) and any(each.result() for each in done):
                _reset(writer)
        finally:
            engine.close()  # before anything that could be cancelled in its turn
            for each in (there, back):
                each.cancel()
            await asyncio.wait((there, back))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault, limit: int | None
    ) -> bool:
        """Pass bytes on until their end or their limit; True: the connection was broken by us."""
        passed = 0
        while data := await reader.read(1 << 16):
            if fault.delay_s:
                await asyncio.sleep(fault.delay_s)
            if fault.lost and self._rng.random() < fault.lost:
                self.faulty += 1
                return True
            if limit is not None and passed + len(data) >= limit:
                writer.write(data[: limit - passed])
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                return True
            writer.write(data)
            await writer.drain()
            passed += len(data)
        return False


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
