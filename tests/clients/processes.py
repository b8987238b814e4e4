"""Starts a server program in its own process group, waits until it serves, and stops all of it.

Knows nothing of what the program is. Output goes to a file in `.build/logs`, whose end is quoted when a start fails.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from loadtest.ports import free_port as free_port

REPOSITORY = Path(__file__).resolve().parents[2]
LOGS = REPOSITORY / ".build" / "logs"
_POLL_S = 0.05
_STOP_S = 20.0


class StartError(Exception):
    """A server did not come up: which, why, and the end of its log."""


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    ready: Callable[[], bool],
    start_s: float,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` until the block ends. `ready` is asked until it says yes; StartError after `start_s`."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{name}-{os.getpid()}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until(ready, process, name, log, start_s)
        yield process
    finally:
        _stop_group(process)


def answers(url: str, *, timeout_s: float = 5.0) -> Callable[[], bool]:
    """A `ready` that says yes once GET `url` gives 200."""

    def ready() -> bool:
        try:
            return httpx.get(url, timeout=timeout_s).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    return ready


def _wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], name: str, log: Path, start_s: float
) -> None:
    deadline = time.monotonic() + start_s
    while not ready():
        if process.poll() is not None:
            raise StartError(f"{name} ended with status {process.returncode} before it served. {_end_of(log)}")
        if time.monotonic() > deadline:
            raise StartError(f"{name} did not serve within {start_s:.0f} s. {_end_of(log)}")
        time.sleep(_POLL_S)


def _end_of(log: Path) -> str:
    return f"The end of {log.relative_to(REPOSITORY)}:\n" + log.read_text(errors="replace")[-3000:]


def _stop_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group, its id being the leader's pid: ask, wait, then kill what is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _STOP_S
        if _group_lives(process):
            os.killpg(process.pid, number)
        while _group_lives(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # a leader that nobody waited for would count as alive
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
