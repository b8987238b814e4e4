"""The C program that plays clients and engines: built from source, spoken to over a pipe.

Owns the driver's process and its protocol. What the figures mean is told in driver.c and load.c.
"""

import json
import os
import select
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from loadtest.wire.process import on_core

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("driver.c", "upstream.c", "load.c"))
_HEADER = Path(__file__).with_name("driver.h")
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra")
_GRACE_S = 20.0


class DriverError(Exception):
    """The driver could not be built, or did not answer."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Microseconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients saw in one run."""

    requests: int
    errors: int
    first_error: str
    reconnects: int
    seconds: float
    rate: float
    """Responses a second."""
    events: int
    coalesced: int
    """Events that came in one read with the event before them."""
    latency_us: Quantiles | None
    first_byte_us: Quantiles | None
    event_delay_us: Quantiles | None
    """From the moment the engine sent an event until the client had it."""
    event_gap_us: Quantiles | None

    @classmethod
    def parse(cls, answer: Mapping[str, object]) -> Self:
        fields = dict(answer)
        for name, value in fields.items():
            if isinstance(value, dict):
                fields[name] = Quantiles(**value)
        return cls(**fields)  # type: ignore[arg-type]


def build(directory: Path) -> Path:
    """The driver's executable, compiled into `directory` unless it is newer than its sources."""
    binary = directory / "driver"
    newest = max(path.stat().st_mtime for path in (*_SOURCES, _HEADER))
    if binary.exists() and binary.stat().st_mtime >= newest:
        return binary
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise DriverError("no C compiler found: the load driver is built from source; install one (Debian: gcc)")
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"driver.{os.getpid()}"
    done = subprocess.run(
        [compiler, *_FLAGS, "-o", str(fresh), *map(str, _SOURCES)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DriverError(f"the load driver does not compile with {compiler}:\n{done.stderr}")
    fresh.replace(binary)
    return binary


class Driver:
    """A running driver with `replicas` engines; use as a context manager."""

    def __init__(self, binary: Path, core: int, replicas: int) -> None:
        with on_core(core):
            self._process = subprocess.Popen(
                [str(binary), "--listeners", str(replicas)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        self.ports: tuple[int, ...] = tuple(self._answer(_GRACE_S)["ports"])  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def run(self, port: int, requests: Path, *, connections: int, seconds: float, rate: float = 0.0) -> Load:
        """Sends the requests of a file to `port` for `seconds`; `rate` in requests a second, 0: unpaced."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"run {port} {connections} {seconds} {rate} {requests}\n".encode())
        self._process.stdin.flush()
        return Load.parse(self._answer(seconds + _GRACE_S))

    def _answer(self, timeout_s: float) -> dict[str, object]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            status = self._process.poll()
            raise DriverError(f"the load driver said nothing for {timeout_s:.0f} s (exit status {status})")
        answer: dict[str, object] = json.loads(line)
        return answer
