"""A bounded ring of records in shared memory: one writer, any number of readers, nobody waits for anybody.

The writer overwrites the oldest records; a reader that falls behind loses them and learns how many from the sequence
numbers. The memory is anonymous (`memfd`): no file, no disk to fill, nothing left behind, and a reader in another
process still reads what an engine wrote before it was killed.

    header   magic, capacity, boot id | head, tail, next seq | live: start and seq of the step that runs now
    data     [length u32, checksum u32, seq u64, payload, padding to 8]...

`tail` moves before records are overwritten and `head` after one is complete. A reader that copies a record and then
finds `tail` beyond it threw away a torn copy; the checksum catches what a weakly ordered machine lets through.
"""

import mmap
import os
import secrets
import struct
import tempfile
import threading
import zlib
from dataclasses import dataclass
from typing import NamedTuple

_MAGIC = b"STEPRNG1"
_HEADER_BYTES = 4096
_FIXED = struct.Struct("<8sQ16s")
_U64 = struct.Struct("<Q")
_LIVE = struct.Struct("<dQ")
_FRAME = struct.Struct("<IIQ")
_HEAD, _TAIL, _NEXT, _LIVE_AT = 64, 72, 80, 128
# The rest of the data area, up to its end, holds no record.
_SKIP = 0xFFFFFFFF
MIN_CAPACITY_BYTES = 64 * 1024


def anonymous_memory(size_bytes: int) -> int:
    """A descriptor of `size_bytes` of memory that really is there. OSError: there is not enough."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("steplane-ring")
    else:
        fd, path = tempfile.mkstemp(prefix="steplane-ring")
        os.unlink(path)
    try:
        os.ftruncate(fd, size_bytes)
        if hasattr(os, "posix_fallocate"):
            # Without it a write to a page that cannot be had would kill the engine with SIGBUS.
            os.posix_fallocate(fd, 0, size_bytes)
    except OSError:
        os.close(fd)
        raise
    return fd


class RingWriter:
    """Appends records. `write` takes a lock: nearly always the step thread's alone (60 ns), rarely the watchdog's."""

    def __init__(self, capacity_bytes: int) -> None:
        """OSError: the memory cannot be had. ValueError: `capacity_bytes` is too small."""
        if capacity_bytes < MIN_CAPACITY_BYTES or capacity_bytes % 8:
            raise ValueError(
                f"a ring of {capacity_bytes} bytes: at least {MIN_CAPACITY_BYTES} and a multiple of 8 are needed"
            )
        self.capacity_bytes = capacity_bytes
        self.fd = anonymous_memory(_HEADER_BYTES + capacity_bytes)
        self.boot = secrets.token_bytes(16)
        self._memory = mmap.mmap(self.fd, _HEADER_BYTES + capacity_bytes)
        self._lock = threading.Lock()
        self._head = self._tail = 0
        self._seq = 1
        _FIXED.pack_into(self._memory, 0, _MAGIC, capacity_bytes, self.boot)
        _U64.pack_into(self._memory, _NEXT, self._seq)

    def write(self, payload: bytes) -> int:
        """Append one record and return its sequence number.

        A payload over an eighth of the ring is dropped; readers see a gap in the sequence numbers.
        """
        length = len(payload)
        size = (_FRAME.size + length + 7) & ~7
        capacity, memory = self.capacity_bytes, self._memory
        with self._lock:
            seq = self._seq
            self._seq = seq + 1
            if size * 8 <= capacity:
                head = self._head
                room = capacity - head % capacity
                begin = head if size <= room else head + room
                end = begin + size
                self._release(end - capacity)
                if begin != head and room >= _FRAME.size:
                    _FRAME.pack_into(memory, _HEADER_BYTES + head % capacity, _SKIP, 0, 0)
                offset = _HEADER_BYTES + begin % capacity
                _FRAME.pack_into(memory, offset, length, zlib.crc32(payload), seq)
                memory[offset + _FRAME.size : offset + _FRAME.size + length] = payload
                self._head = end
                _U64.pack_into(memory, _HEAD, end)
            _U64.pack_into(memory, _NEXT, seq + 1)
        return seq

    def step_runs(self, start_s: float, number: int) -> None:
        """Tell readers that a step began at `start_s` (0: none runs), even if it will never end."""
        _LIVE.pack_into(self._memory, _LIVE_AT, start_s, number)

    def close(self) -> None:
        """Give the memory back; readers in other processes keep theirs."""
        self._memory.close()
        os.close(self.fd)

    def _release(self, until: int) -> None:
        """Give up the oldest records before position `until`."""
        tail, memory, capacity = self._tail, self._memory, self.capacity_bytes
        if tail >= until:
            return
        while tail < until:
            offset = tail % capacity
            # A record never starts in the last bytes that could not hold its frame.
            length = (
                _FRAME.unpack_from(memory, _HEADER_BYTES + offset)[0] if capacity - offset >= _FRAME.size else _SKIP
            )
            tail += capacity - offset if length == _SKIP else (_FRAME.size + length + 7) & ~7
        self._tail = tail
        _U64.pack_into(memory, _TAIL, tail)


class Live(NamedTuple):
    """The step that runs now. `start_s` 0: none does."""

    start_s: float
    number: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records read in one go: (seq, payload) pairs, oldest first. `lost` were overwritten before they were read."""

    records: list[tuple[int, bytes]]
    lost: int


class RingReader:
    """Reads from an attached ring at its own pace. One reader is one position."""

    def __init__(self, fd: int) -> None:
        """`fd`: of the ring's memory; it may be closed afterwards. ValueError: that is no ring."""
        self._memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        magic, self._capacity, self._boot = _FIXED.unpack_from(self._memory, 0)
        if magic != _MAGIC:
            raise ValueError("the shared memory handed to the step feed is no ring of this version of Steplane")
        self._cursor = self._tail()
        self._expected = 0

    @property
    def boot(self) -> str:
        """Names this run of the engine: sequence numbers start again with it."""
        return str(self._boot.hex())

    @property
    def next_seq(self) -> int:
        """What the next record will be numbered."""
        return int(_U64.unpack_from(self._memory, _NEXT)[0])

    def live(self) -> Live:
        """The step that runs now."""
        return Live(*_LIVE.unpack_from(self._memory, _LIVE_AT))

    def from_oldest(self) -> None:
        """Go to the oldest record that is still there."""
        self._cursor, self._expected = self._tail(), 0

    def from_newest(self) -> None:
        """Skip everything written so far."""
        # The next record tells its number; asking for it apart from the head could see two different moments.
        self._cursor, self._expected = self._head(), 0

    def after(self, seq: int) -> None:
        """Go to the record that follows `seq`; what lies between and is gone counts as lost at the next read."""
        self._cursor, self._expected = self._tail(), seq + 1

    def read(self, limit: int = 256) -> Batch:
        """Up to `limit` records that have come since the last read."""
        records: list[tuple[int, bytes]] = []
        lost = 0
        next_seq = self.next_seq
        while len(records) < limit:
            frame = self._next()
            if frame is None:
                break
            seq = frame[0]
            if seq < self._expected:
                continue
            if self._expected:
                lost += seq - self._expected
            self._expected = seq + 1
            records.append(frame)
        if not records and self._expected and self._cursor == self._head() and next_seq > self._expected:
            # Only records too large for the ring have come: the head moves before the next number does.
            lost += next_seq - self._expected
            self._expected = next_seq
        return Batch(records, lost)

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()

    def _head(self) -> int:
        return int(_U64.unpack_from(self._memory, _HEAD)[0])

    def _tail(self) -> int:
        return int(_U64.unpack_from(self._memory, _TAIL)[0])

    def _next(self) -> tuple[int, bytes] | None:
        """The record at the cursor, or None when there is no newer one. Moves on, over what was overwritten."""
        memory, capacity = self._memory, self._capacity
        while True:
            cursor = max(self._cursor, self._tail())
            if cursor >= self._head():
                self._cursor = cursor
                return None
            offset = cursor % capacity
            room = capacity - offset
            length, checksum, seq = (
                _FRAME.unpack_from(memory, _HEADER_BYTES + offset) if room >= _FRAME.size else (_SKIP, 0, 0)
            )
            if length == _SKIP:
                self._cursor = cursor + room
                continue
            start = _HEADER_BYTES + offset + _FRAME.size
            payload = memory[start : start + min(length, room)]
            if self._tail() > cursor or zlib.crc32(payload) != checksum:
                # Overwritten while it was copied: go on from what is whole.
                self._cursor = max(self._tail(), cursor + 8) if self._tail() > cursor else self._head()
                continue
            self._cursor = cursor + ((_FRAME.size + length + 7) & ~7)
            return seq, payload
