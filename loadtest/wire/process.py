"""Processes under test: started on one core, their CPU time and memory read, stopped by their ids.

Owns what is known of a process from the outside. Linux only.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_STOP_S = 10.0
_CPUCLOCK_SCHED = 2


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Children started inside run on `core` alone, with all their threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree(pid: int) -> list[int]:
    """The process and its living descendants."""
    found = [pid]
    for parent in found:
        try:
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def cpu_ns(pid: int) -> int:
    """User and system time of the process and its living descendants, ended threads included.

    From each process' CPU clock (clock_getcpuclockid(3)), which counts nanoseconds where /proc/PID/stat counts ticks.
    """
    total = 0
    for each in tree(pid):
        try:
            total += own_cpu_ns(each)
        except OSError:
            continue  # ended meanwhile
    return total


def own_cpu_ns(pid: int) -> int:
    """The same of the process alone. Raises OSError where there is none."""
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)


def rss_bytes(pid: int) -> int:
    """Resident memory of the process and its living descendants, pages shared between them counted in each."""
    pages = 0
    for each in tree(pid):
        try:
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def start(command: Sequence[str], core: int, log: Path, directory: Path) -> subprocess.Popen[bytes]:
    """Starts `command` in `directory` on `core`, in a process group of its own, both outputs to `log`."""
    with on_core(core), log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with its descendants: SIGTERM, then SIGKILL to what is left."""
    descendants = tree(process.pid)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in descendants[1:]:
        try:
            if os.getpgid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
