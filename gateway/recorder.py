"""Writes decisions to a file, for `steplane check --against`: one line for each request that is over, or for a share.

A witness of the data plane, which has none where nothing is recorded. Lines are collected and written by a thread about
once a second; when the disk is too slow they are dropped, and counted, rather than waited for.
"""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from gateway.call import Attempt, Call
from gateway.control.recordconfig import RecordConfig
from gateway.control.traffic import line_of
from gateway.wire.exchange import Exchange

log = structlog.get_logger("steplane.recorder")

_EVERY_S = 1.0
_MOST_LINES = 20_000
"""That wait to be written."""


class Recorder:
    """See the module. `written` and `dropped` count lines."""

    def __init__(
        self,
        config: RecordConfig,
        folder: Path,
        wall: Callable[[], float] = time.time,
        random_source: random.Random | None = None,
    ) -> None:
        self.config = config
        self.written = 0
        self.dropped = 0
        self._path = folder / config.path
        self._wall = wall
        self._random = random_source or random.Random()
        self._lines: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None
        self._failed = ""

    def start(self) -> None:
        """Begin to write what is collected."""
        self._writing = asyncio.create_task(self._write_on(), name="recorder")

    async def close(self) -> None:
        """Write what is left, and end."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._flush()

    def finished(self, exchange: Exchange, call: Call, attempt: Attempt | None, now_s: float) -> None:  # noqa: ARG002
        """A request is over."""
        decision = call.decision
        if decision is None or (self.config.sample < 1 and self._random.random() >= self.config.sample):
            return
        if len(self._lines) >= _MOST_LINES:
            self.dropped += 1
            return
        self._lines.append(line_of(call.request, call.classification, decision, self._wall()))

    async def _write_on(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            await self._flush()

    async def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            await asyncio.to_thread(_append, self._path, b"".join(lines), self.config.max_bytes)
        except OSError as error:
            self.dropped += len(lines)
            if str(error) != self._failed:
                self._failed = str(error)
                log.error("decisions_not_recorded", path=str(self._path), error=self._failed)
        else:
            self.written += len(lines)
            self._failed = ""


def _append(path: Path, data: bytes, max_bytes: int) -> None:
    """Append whole lines; a file that would grow too large is put aside first."""
    if path.exists() and path.stat().st_size + len(data) > max_bytes:
        path.replace(path.with_name(f"{path.name}.1"))
    with path.open("ab") as file:
        file.write(data)
