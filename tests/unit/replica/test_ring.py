"""The ring: bounded, never waits, and tells readers what they missed."""

import os
import struct
import subprocess
import sys

import pytest

from replica.recorder.ring import MIN_CAPACITY_BYTES, RingReader, RingWriter


@pytest.fixture
def ring():
    writer = RingWriter(MIN_CAPACITY_BYTES)
    yield writer
    writer.close()


def payload(number: int, size: int) -> bytes:
    return struct.pack("<I", number).ljust(size, b"x")


def test_what_is_written_is_read_in_order(ring: RingWriter) -> None:
    reader = RingReader(ring.fd)
    written = [(ring.write(payload(n, 10 + n)), payload(n, 10 + n)) for n in range(50)]
    batch = reader.read()
    assert batch.records == written
    assert batch.lost == 0
    assert reader.read().records == []


@pytest.mark.parametrize("size", [4, 5, 8, 24, 100, 1000, 4096, MIN_CAPACITY_BYTES // 8 - 24])
def test_a_reader_that_falls_behind_is_told_how_many_it_lost(ring: RingWriter, size: int) -> None:
    reader = RingReader(ring.fd)
    first = ring.write(payload(0, size))
    assert [seq for seq, _ in reader.read().records] == [first]
    total = 3 * MIN_CAPACITY_BYTES // (size + 16) + 7
    for number in range(1, total):
        ring.write(payload(number, size))
    records, lost = [], 0
    while (batch := reader.read(limit=7)).records:
        records += batch.records
        lost += batch.lost
    assert lost > 0
    assert lost + len(records) == total - 1
    assert [seq for seq, _ in records] == list(range(first + total - len(records), first + total))
    assert all(struct.unpack_from("<I", data)[0] == seq - first for seq, data in records)


@pytest.mark.parametrize("sizes", [(1, 2, 3), (4000, 17), (8168, 8168, 3), (1, 8000)])
def test_records_of_all_sizes_survive_the_end_of_the_buffer(ring: RingWriter, sizes: tuple[int, ...]) -> None:
    reader = RingReader(ring.fd)
    for number in range(3000):
        data = payload(number, sizes[number % len(sizes)])
        ring.write(data)
        assert [record for _, record in reader.read().records] == [data]


def test_a_record_too_large_for_the_ring_is_a_gap_not_an_error(ring: RingWriter) -> None:
    reader = RingReader(ring.fd)
    ring.write(b"before")
    ring.write(bytes(MIN_CAPACITY_BYTES))
    ring.write(b"after")
    batch = reader.read()
    assert [data for _, data in batch.records] == [b"before", b"after"]
    assert batch.lost == 1
    ring.write(bytes(MIN_CAPACITY_BYTES))
    assert reader.read().lost == 1
    assert reader.read().lost == 0


def test_reading_resumes_after_a_sequence_number(ring: RingWriter) -> None:
    seqs = [ring.write(payload(n, 8)) for n in range(10)]
    reader = RingReader(ring.fd)
    reader.after(seqs[5])
    batch = reader.read()
    assert [seq for seq, _ in batch.records] == seqs[6:]
    assert batch.lost == 0


def test_resuming_at_a_record_that_is_gone_counts_the_missing(ring: RingWriter) -> None:
    for number in range(5000):
        ring.write(payload(number, 100))
    reader = RingReader(ring.fd)
    reader.after(10)
    batch = reader.read(limit=1)
    assert batch.lost == batch.records[0][0] - 11


def test_from_newest_skips_what_is_there(ring: RingWriter) -> None:
    ring.write(b"old")
    reader = RingReader(ring.fd)
    reader.from_newest()
    assert reader.read().records == []
    ring.write(b"new")
    assert [data for _, data in reader.read().records] == [b"new"]


def test_the_step_that_runs_now_is_visible_before_it_ends(ring: RingWriter) -> None:
    reader = RingReader(ring.fd)
    ring.step_runs(12.5, 7)
    assert reader.live() == (12.5, 7)


def test_memory_that_is_no_ring_is_refused(tmp_path) -> None:
    path = tmp_path / "other"
    path.write_bytes(bytes(8192))
    with path.open("r+b") as file, pytest.raises(ValueError, match="no ring"):
        RingReader(file.fileno())


@pytest.mark.parametrize("capacity", [0, 1000, MIN_CAPACITY_BYTES + 1])
def test_a_ring_too_small_or_uneven_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        RingWriter(capacity)


WRITER = """
import os, sys
from replica.recorder.ring import RingWriter
import socket
link = socket.socket(fileno=int(sys.argv[1]))
ring = RingWriter(1 << 16)
socket.send_fds(link, [b"ring"], [ring.fd])
number = 0
while True:
    ring.write(number.to_bytes(8, "little") * (1 + number % 50))
    number += 1
"""


def test_records_outlive_a_writer_killed_in_the_middle_of_writing() -> None:
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(theirs.fileno())], pass_fds=(theirs.fileno(),))
        try:
            _, fds, _, _ = socket.recv_fds(ours, 16, 1)
            reader = RingReader(fds[0])
            os.close(fds[0])
            seen = 0
            while seen < 20_000:  # read while it writes as fast as it can
                for seq, data in reader.read().records:
                    assert data == (seq - 1).to_bytes(8, "little") * (1 + (seq - 1) % 50)
                    seen += 1
        finally:
            process.kill()
            process.wait()
    reader.from_oldest()
    batch = reader.read(limit=1_000_000)
    assert batch.records
    assert batch.lost == 0
    assert all(data[:8] == (seq - 1).to_bytes(8, "little") for seq, data in batch.records)
