"""Running a gateway in this process: signals, start, drain and end.

The first SIGTERM or SIGINT asks for an orderly end, the second for an immediate one. Knows nothing of who else runs
beside the gateway.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from gateway.app import Gateway
from gateway.cli.failure import CliError
from gateway.control.config import Config
from gateway.dataplane import DataPlane
from gateway.memory import settle_memory

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """What the signals have asked for so far. Use as a context manager on the running loop.

    requested: set by the first signal: finish what runs.
    at_once:   set by the second: don't wait any more; `exit_code` is then 128 + its number.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self.exit_code = 0

    def __enter__(self) -> "Stop":
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._received, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _received(self, number: int) -> None:
        if self.requested.is_set():
            self.exit_code = 128 + number
            self.at_once.set()
        self.requested.set()


@asynccontextmanager
async def running(config: Config, stop: Stop, hint: str, plane: DataPlane | None = None) -> AsyncIterator[Gateway]:
    """A gateway that listens; at the end of the block it drains, unless the block failed, and closes.

    plane: carries its requests. Raises CliError, with `hint`, when a port can't be had.
    """
    gateway = Gateway(config, plane=plane)
    gateway.on_end_asked = stop.requested.set
    try:
        await gateway.start()
    except OSError as error:
        raise CliError(f"can't listen: {error.strerror or error}; {hint}") from None
    settle_memory()
    try:
        yield gateway
        await unless(stop.at_once, gateway.drain())
    finally:
        await gateway.close()


async def unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do `work`, but give it up as soon as `event` is set. True when it was done; raises what it raises."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)
