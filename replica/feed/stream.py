"""`GET /steps`: records as they come, one JSON object a line, to one reader at its own pace.

    {"event": "hello", "boot": …, "next_seq": …}     first line: who speaks
    {"event": "lost", "count": n, "after": seq}      n records after `seq` are gone for this reader
    {"event": "step" | "offence" | "compile" | "note", "seq": …}
    {"event": "alive", "next_seq": …, "step_runs_s": s}   at least once a second
    {"event": "end", "reason": "engine_gone", "next_seq": …}

A reader resumes with `?boot=BOOT&after=SEQ`, the two values it saw last. With another boot the engine was started anew:
the reader gets everything that is still there.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from replica.feed.document import document
from replica.recorder.records import StepRecord, decode
from replica.recorder.ring import RingReader

_LOOK_EVERY_S = 0.01
_ALIVE_EVERY_S = 1.0
_LINES_AT_ONCE = 128


def clock_offset_s() -> float:
    """Unix time minus the recorder's clock, which on Linux is the same in every process."""
    return time.time() - time.perf_counter()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a reader starts. `boot` and `after`: what it saw last; without them from the `newest` or the oldest on."""

    boot: str = ""
    after: int | None = None
    newest: bool = False
    least_hook_us: float = 0.0

    def seek(self, reader: RingReader) -> None:
        """Move `reader` there."""
        if self.after is not None and self.boot in {"", reader.boot} and self.after < reader.next_seq:
            reader.after(self.after)
        elif self.newest and self.after is None:
            reader.from_newest()
        else:
            reader.from_oldest()


async def stream_steps(
    response: web.StreamResponse,
    reader: RingReader,
    position: Position,
    hello: dict[str, Any],
    engine_gone: Callable[[], bool],
) -> None:
    """Write lines to `response` until its client leaves (raises ConnectionError) or the engine does (returns)."""
    position.seek(reader)
    seq = max(0, position.after or 0)
    await response.write(_line(hello | {"event": "hello", "boot": reader.boot, "next_seq": reader.next_seq}))
    spoke_s = time.monotonic()
    while True:
        # Asked before reading, so that what the engine wrote last is read before the end is said.
        gone = engine_gone()
        batch = reader.read(_LINES_AT_ONCE)
        lines: list[bytes] = []
        if batch.lost:
            lines.append(_line({"event": "lost", "count": batch.lost, "after": seq}))
        offset_s = clock_offset_s()
        for seq, payload in batch.records:
            record = decode(seq, payload)
            if not (isinstance(record, StepRecord) and record.hook_us < position.least_hook_us):
                lines.append(_line(document(record, offset_s)))
        now = time.monotonic()
        if not batch.records and gone:
            lines.append(_line({"event": "end", "reason": "engine_gone", "next_seq": reader.next_seq}))
        elif now - spoke_s >= _ALIVE_EVERY_S:
            live = reader.live()
            runs_s = time.perf_counter() - live.start_s if live.start_s else 0.0
            lines.append(_line({"event": "alive", "next_seq": reader.next_seq, "step_runs_s": round(runs_s, 3)}))
        if lines:
            await response.write(b"".join(lines))
            spoke_s = now
        if not batch.records:
            if gone:
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
