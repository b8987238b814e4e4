"""`GET /steps`: records as they come, one JSON object a line, to one reader at its own pace.

    {"event": "hello", "boot": …, "next_seq": …}     first line: who speaks
    {"event": "lost", "count": n, "after": seq}      n records after `seq` are gone for this reader
    {"event": "step" | "offence" | "compile" | "note", "seq": …}
    {"event": "rollup", "after": seq, …}   with `rollup_s`: what all steps came to (rollup.py)
    {"event": "alive", "next_seq": …, "step_runs_s": s}   at least once a second
    {"event": "end", "reason": "engine_gone", "next_seq": …}

A reader resumes with `?boot=BOOT&after=SEQ`, the two values it saw last. With another boot the engine was started anew:
the reader gets everything that is still there. One that asks for rollups resumes after that of the last one, and skips
the records that it has seen since.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from replica.feed.document import document, requests_document
from replica.feed.rollup import Rollup, dear
from replica.recorder.records import Record, StepRecord, decode
from replica.recorder.ring import RingReader

# An engine at work is looked at this often; a look costs about 20 µs.
_LOOK_EVERY_S = 0.003
# One that has had nothing to do for a while.
_LOOK_IDLE_S = 0.02
_IDLE_AFTER_S = 0.5
# Between two steps of a busy engine none runs either, for less than this.
_FELL_IDLE_S = 0.02
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

    def seek(self, reader: RingReader) -> None:
        """Move `reader` there."""
        if self.after is not None and self.boot in {"", reader.boot} and self.after < reader.next_seq:
            reader.after(self.after)
        elif self.newest and self.after is None:
            reader.from_newest()
        else:
            reader.from_oldest()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which steps a reader wants a line for.

    least_hook_us: with at least this much hook time.
    least_own_us:  in which some request, all its sequences together, took at least this much; the line then names only
                   such requests. 0: any.
    rollup_s:      a line with what all steps came to this often, and when the engine falls idle; 0: none.
    """

    least_hook_us: float = 0.0
    least_own_us: float = 0.0
    rollup_s: float = 0.0


@dataclass(slots=True)
class _Lines:
    """Makes lines of records. `seq`: of the last one; `rolled_s`: when the last rollup was made."""

    wanted: Wanted
    seq: int
    rolled_s: float = 0.0
    rollup: Rollup = field(default_factory=Rollup)

    def of(self, record: Record, offset_s: float) -> bytes | None:
        """The line of one record, if its reader wants it."""
        self.seq = record.seq
        if not isinstance(record, StepRecord):
            return _line(document(record, offset_s))
        wanted = self.wanted
        if wanted.rollup_s:
            self.rollup.add(record)
        if record.hook_us < wanted.least_hook_us:
            return None
        if not wanted.least_own_us:
            return _line(document(record, offset_s))
        own = dear(record, wanted.least_own_us)
        return _line(document(record, offset_s) | {"requests": requests_document(own)}) if own else None

    def rolled_up(self, now: float, *, last: bool) -> bytes | None:
        """The rollup, if it is time. `last`: no step follows soon."""
        rollup = self.rollup
        if not rollup.steps or not (last or rollup.full or now - self.rolled_s >= self.wanted.rollup_s):
            return None
        self.rolled_s = now
        return _line(rollup.take(self.seq, time.time()))


async def stream_steps(
    response: web.StreamResponse,
    reader: RingReader,
    position: Position,
    wanted: Wanted,
    hello: dict[str, Any],
    engine_gone: Callable[[], bool],
) -> None:
    """Write lines to `response` until its client leaves (raises ConnectionError) or the engine does (returns)."""
    position.seek(reader)
    made = _Lines(wanted, max(0, position.after or 0))
    await response.write(_line(hello | {"event": "hello", "boot": reader.boot, "next_seq": reader.next_seq}))
    spoke_s = busy_s = made.rolled_s = time.monotonic()
    while True:
        # Asked before reading, so that what the engine wrote last is read before the end is said.
        gone = engine_gone()
        batch = reader.read(_LINES_AT_ONCE)
        lines: list[bytes] = []
        if batch.lost:
            lines.append(_line({"event": "lost", "count": batch.lost, "after": made.seq}))
        offset_s = clock_offset_s()
        for seq, payload in batch.records:
            line = made.of(decode(seq, payload), offset_s)
            if line is not None:
                lines.append(line)
        now = time.monotonic()
        live = reader.live()
        if batch.records or live.start_s:
            busy_s = now
        rollup = made.rolled_up(now, last=gone or now - busy_s >= _FELL_IDLE_S)
        if rollup is not None:
            lines.append(rollup)
        if not batch.records and gone:
            lines.append(_line({"event": "end", "reason": "engine_gone", "next_seq": reader.next_seq}))
        elif now - spoke_s >= _ALIVE_EVERY_S:
            runs_s = time.perf_counter() - live.start_s if live.start_s else 0.0
            lines.append(_line({"event": "alive", "next_seq": reader.next_seq, "step_runs_s": round(runs_s, 3)}))
        if lines:
            await response.write(b"".join(lines))
            spoke_s = now
        if not batch.records:
            if gone:
                return
            await asyncio.sleep(_LOOK_EVERY_S if now - busy_s < _IDLE_AFTER_S else _LOOK_IDLE_S)


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
