"""One worker, as its supervisor sees it: a process, a channel, and what the worker has said last."""

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.workers.channel import Channel, open_channel
from gateway.workers.messages import (
    Accept,
    Accepting,
    Alive,
    AskSamples,
    Demand,
    Demands,
    Drain,
    Family,
    Hello,
    OfWorker,
    Ready,
    Reload,
    Reloaded,
    Samples,
    Shares,
    Slots,
)

# -P: a folder named `gateway` where the user stands must not be taken for ours, which is found by `_PACKAGES`.
_COMMAND = (sys.executable, "-P", "-m", "gateway.cli", "worker", "--channel")
_PACKAGES = str(Path(__file__).resolve().parents[2])

_STACKS_S = 1.0
"""That a worker has to show its stacks, of which nobody says that it has."""

_log = structlog.get_logger("steplane.supervisor")
_keys = itertools.count(1)


class WorkerProcess:
    """A process from its start to its end. `key` is its alone, among all that this supervisor has had.

    slot, generation: its place, and how many times all were renewed before it.
    count:     workers of its generation.
    began_s:   when its process was started, by the loop's clock.
    ready:     it runs and knows how its replicas are.
    kept:      its generation is the one that counts, so that it is to be started again if it dies.
    leaving:   it is to end, and gets no clients any more.
    silent:    looks of its supervisor since it last said something; None before it first has.
    ended:     the process is gone, and all that it said was heard; `returncode` then says how.
    granted:   its part of each pool's budget, as it was told last; ceilings: the most that it may take for its part, as
               long as it has not said that it has heard the last word. alone: pools in which it alone may exceed it.
    reloads:   how often it has taken over another configuration.
    accepts:   slots that it was told to take clients from; `accepting`: those that it said it does.
    """

    def __init__(
        self, slot: int, generation: int, count: int, folder: Path, on_change: Callable[["WorkerProcess"], None]
    ) -> None:
        """folder: where its admin port gets its Unix socket. on_change: told when it ends or says more than figures."""
        self.key = next(_keys)
        self.slot = slot
        self.generation = generation
        self.count = count
        self.admin = folder / f"worker-{self.key}"
        self.began_s = 0.0
        self.pid = 0
        self.returncode: int | None = None
        self.ready = False
        self.silent: int | None = None
        self.ended = False
        self.kept = False
        self.leaving = False
        self.reloads = 0
        self.accepts: Slots = []
        self.accepting: Slots = []
        self.granted: dict[str, float] = {}
        self.ceilings: dict[str, float] = {}
        self.alone: set[str] = set()
        self.demands: dict[str, Demand] = {}
        self.samples: list[Family] | None = None
        self._on_change = on_change
        self._channel: Channel[OfWorker] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._grants = 0
        self._heard = 0
        self._questions = itertools.count(1)
        self._asked: dict[int, asyncio.Future[list[Family]]] = {}
        self._living: asyncio.Task[None] | None = None

    async def start(self, hello: Hello) -> None:
        """Start the process. Raises OSError."""
        ours, its = socket.socketpair()
        search = os.pathsep.join([_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])
        descriptors = [descriptor for slot in hello.sockets.values() for _, descriptor in slot]
        try:
            with its:
                self._process = await asyncio.create_subprocess_exec(
                    *_COMMAND,
                    str(its.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": search},
                    pass_fds=(its.fileno(), *descriptors),
                    # A Ctrl-C in the terminal is for us alone.
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.began_s = asyncio.get_running_loop().time()
        self.pid = self._process.pid
        self.granted = dict(hello.shares)
        self.ceilings = dict(hello.shares)
        self._channel = await open_channel(ours, OfWorker)
        self._channel.send(hello)
        self._living = asyncio.create_task(self._live(self._process, self._channel), name=f"worker {self.pid}")

    async def ask_samples(self, timeout_s: float) -> list[Family] | None:
        """Its metrics as they are now; None if it doesn't answer in time."""
        if self._channel is None or self.ended:
            return None
        number = next(self._questions)
        answer: asyncio.Future[list[Family]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._channel.send(AskSamples(number))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            self._asked.pop(number, None)

    def accept(self, slots: Slots) -> None:
        """Have it take clients from these slots."""
        if slots != self.accepts and self._channel is not None:
            self.accepts = slots
            self._channel.send(Accept(slots))

    @property
    def has_heard(self) -> bool:
        """Whether what it said last was said in the knowledge of what it was granted last."""
        return self._heard == self._grants

    def grant(self, parts: dict[str, float], alone: set[str]) -> None:
        """Tell it its part of each pool's budget, and where it alone may exceed it."""
        is_news = alone != self.alone or any(self.granted.get(pool) != part for pool, part in parts.items())
        if self._channel is not None and is_news:
            self.alone = alone
            self.granted |= parts
            for pool, part in parts.items():
                self.ceilings[pool] = max(part, self.ceilings.get(pool, 0.0))
            self._grants += 1
            self._channel.send(Shares(self._grants, parts, sorted(alone)))

    def reload(self) -> None:
        """Have it read its configuration again."""
        if self._channel is not None:
            self._channel.send(Reload())

    def drain(self, *, handed_over: bool) -> None:
        """Have it end in good order."""
        self.leaving = True
        if self._channel is not None:
            self._channel.send(Drain(handed_over))

    def kill(self) -> None:
        """End it now."""
        self.leaving = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end_hanging(self) -> None:
        """End one that does nothing any more, so that it counts as one that died. First it shows where it stands."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGQUIT)
                await asyncio.sleep(_STACKS_S)
                self._process.kill()

    def terminate(self) -> None:
        """Have it end in good order by a signal, so that it counts as one that died."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    @property
    def epitaph(self) -> str:
        """How it ended."""
        code = self.returncode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def _live(self, process: asyncio.subprocess.Process, channel: Channel[OfWorker]) -> None:
        try:
            while (message := await channel.receive()) is not None:
                self.silent = 0
                self._hear(message)
                # Metrics are for whoever asked; neither changes anything.
                if not isinstance(message, Samples | Alive):
                    self._on_change(self)
        except Exception:
            # What we can't understand we can't supervise.
            _log.exception("a worker said what nobody understands; it is ended", pid=self.pid)
            self.kill()
        self.returncode = await process.wait()
        channel.close()
        for answer in self._asked.values():
            answer.cancel()
        self.ended = True
        self._on_change(self)

    def _hear(self, message: OfWorker) -> None:
        match message:
            case Ready():
                self.ready = True
            case Accepting(slots):
                self.accepting = slots
            case Demands(heard, pools):
                self.demands = pools
                self._heard = heard
                if self.has_heard:
                    self.ceilings = dict(self.granted)
            case Reloaded():
                self.reloads += 1
            case Samples(number, families):
                self.samples = families
                answer = self._asked.get(number)
                if answer is not None and not answer.done():
                    answer.set_result(families)
