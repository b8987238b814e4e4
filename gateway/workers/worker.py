"""A worker: one gateway that takes its clients, and its orders, from a supervisor.

The only module in here that knows the gateway. It ends in good order when it is told to, when it gets SIGTERM, and when
its supervisor is gone.
"""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.app import Gateway
from gateway.control.config import check_config
from gateway.control.document import Document
from gateway.control.logs import configure_logs
from gateway.control.problem import ConfigError
from gateway.seat import Seat
from gateway.workers.channel import Channel, open_channel
from gateway.workers.lending import Lending
from gateway.workers.messages import (
    PROTOCOL,
    Accept,
    Accepting,
    Alive,
    AskSamples,
    Drain,
    Hello,
    Ready,
    Reload,
    Reloaded,
    Samples,
    Shares,
    ToWorker,
)
from gateway.workers.samples import collect

_KNOWN_WITHIN_S = 5.0
"""Replicas that say nothing for longer keep it from its clients no more."""
_LEND_EVERY_S = 0.2
_ALIVE_EVERY_S = 1.0

_log = structlog.get_logger("steplane.worker")


class WorkerError(Exception):
    """A worker that can't begin."""


async def work(channel_end: socket.socket, started: Callable[[], None]) -> None:
    """Be a worker until the end. `started`: called when all is made that lasts. Raises WorkerError or OSError."""
    channel: Channel[ToWorker] = await open_channel(channel_end, ToWorker)
    hello = await channel.receive()
    if not isinstance(hello, Hello):
        raise WorkerError("a worker is started by `steplane serve --workers N`, not by hand")
    if hello.protocol != PROTOCOL:
        raise WorkerError("the supervisor is of another version of Steplane: stop it and start it again")
    structlog.contextvars.bind_contextvars(worker=hello.slot)
    worker = _Worker(hello, channel)
    await worker.run(started)


class _Worker:
    def __init__(self, hello: Hello, channel: Channel[ToWorker]) -> None:
        origins = {tuple(location): origin for location, origin in hello.origins}
        document = Document(hello.file, hello.document, {}, {}, origins, tuple(hello.files))
        try:
            config = check_config(document, Path(hello.folder), Path(hello.file))
        except ConfigError as error:
            raise WorkerError(f"the supervisor's configuration can't be used here: {error}") from None
        configure_logs(config.logs)
        self._hello = hello
        self._channel = channel
        self._gateway = Gateway(config, Seat(Path(hello.admin), Path(hello.books)))
        self._gateway.on_reloaded = self._reloaded
        self._lending = Lending(hello.shares)
        self._taken: dict[int, list[socket.socket]] = {}
        """Sockets that clients are taken from, by slot."""
        self._ending: asyncio.Task[None] | None = None
        self._in_hurry = False
        self._orphaned = False
        self._over = asyncio.Event()

    async def run(self, started: Callable[[], None]) -> None:
        """Serve, and end."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, False)
        await self._gateway.start()
        started()
        tasks = [
            asyncio.create_task(self._obey(), name="orders"),
            asyncio.create_task(self._get_ready(), name="getting ready"),
            asyncio.create_task(self._lend(), name="lending"),
            asyncio.create_task(self._beat(), name="beating"),
        ]
        try:
            await self._over.wait()
            self._channel.send(Samples(0, await collect(self._gateway.registry)))
            await self._channel.flush()
        finally:
            tasks += [self._ending] if self._ending is not None else []
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._gateway.close()
            self._channel.close()
            if self._orphaned:
                # Nobody else is left to do it; what other workers have open in there they keep.
                shutil.rmtree(Path(self._hello.admin).parent, ignore_errors=True)

    def _end(self, handed_over: bool) -> None:
        """End in good order; without others to take over there is less time, also for what has begun already."""
        if self._in_hurry or (handed_over and self._ending is not None):
            return
        self._in_hurry = not handed_over
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.create_task(self._finish(handed_over), name="ending")

    async def _finish(self, handed_over: bool) -> None:
        if handed_over:
            await self._gateway.hand_over()
        else:
            await self._gateway.drain()
        self._over.set()

    async def _get_ready(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_WITHIN_S):
                await self._gateway.wait_all_probed()
        self._channel.send(Ready())

    async def _obey(self) -> None:
        try:
            await self._do_as_told()
        except Exception:
            # Another one in its place may do better; this one would be deaf.
            _log.exception("an order could not be carried out")
        else:
            _log.warning("the supervisor is gone")
            self._orphaned = True
        self._end(False)

    async def _do_as_told(self) -> None:
        while (message := await self._channel.receive()) is not None:
            match message:
                case Accept(slots):
                    await self._accept(slots)
                case Drain(handed_over):
                    self._end(handed_over)
                case Shares():
                    self._lending.grant(message)
                    self._hold()
                case Reload():
                    self._gateway.reloading.request("signal")
                case AskSamples(number):
                    self._channel.send(Samples(number, await collect(self._gateway.registry)))
                case Hello():
                    pass

    async def _accept(self, slots: list[int]) -> None:
        if self._ending is not None:
            return
        for slot in [slot for slot in self._taken if slot not in slots]:
            for sock in self._taken.pop(slot):
                self._gateway.leave_to_others(sock)
        for slot in slots:
            if slot not in self._taken:
                try:
                    await self._take(slot)
                except OSError as error:
                    if not self._taken:
                        raise
                    # Of another's place. Those who are clients here are not to pay for it.
                    _log.error("clients of another worker can't be taken", slot=slot, why=str(error))
        self._channel.send(Accepting([slot for slot in slots if slot in self._taken]))

    async def _take(self, slot: int) -> None:
        """Take clients from the sockets of a slot. Raises OSError, with nothing left open."""
        taken: list[socket.socket] = []
        try:
            for at, number in self._hello.sockets[slot]:
                # A copy, since who stops listening closes it.
                sock = socket.socket(fileno=os.dup(number))
                try:
                    await self._gateway.accept(at, sock)
                except OSError:
                    sock.close()
                    raise
                taken.append(sock)
        except OSError:
            for sock in taken:
                self._gateway.leave_to_others(sock)
            raise
        self._taken[slot] = taken

    async def _lend(self) -> None:
        self._hold()
        while True:
            await asyncio.sleep(_LEND_EVERY_S)
            self._hold()

    async def _beat(self) -> None:
        while True:
            self._channel.send(Alive())
            await asyncio.sleep(_ALIVE_EVERY_S)

    def _reloaded(self) -> None:
        self._hold()
        self._channel.send(Reloaded())

    def _hold(self) -> None:
        configs, pools = self._gateway.config.pools, self._gateway.router.pools
        self._lending.hold(configs, pools)
        news = self._lending.news(configs, pools, self._gateway.queues)
        if news is not None:
            self._channel.send(news)
