"""Processes under test, seen from the outside."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.wire import process

BURN = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BURN + "print('burnt', flush=True); input()"!r}],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def family(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A parent that sleeps and a child that has used 0.2 s of CPU time and waits."""
    log = tmp_path / "log"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    started = process.start([sys.executable, "-c", FAMILY], min(os.sched_getaffinity(0)), log, tmp_path)
    os.set_blocking(reader, True)
    with os.fdopen(reader) as lines:
        child = int(lines.readline())
    return started, child


def test_the_cpu_time_and_memory_of_a_tree_include_its_children(family: tuple[subprocess.Popen[bytes], int]) -> None:
    parent, child = family
    try:
        assert process.tree(parent.pid) == [parent.pid, child]
        assert process.cpu_ns(parent.pid) >= process.cpu_ns(child) >= 200_000_000
        assert process.rss_bytes(parent.pid) > process.rss_bytes(child) > 1_000_000
    finally:
        process.stop(parent)


def test_stopping_a_process_stops_its_children(family: tuple[subprocess.Popen[bytes], int]) -> None:
    parent, child = family
    child_fd = os.pidfd_open(child)
    try:
        process.stop(parent)
        assert parent.returncode is not None
        poller = select.poll()
        poller.register(child_fd)
        assert poller.poll(10_000)
    finally:
        os.close(child_fd)


def test_a_process_that_ended_counts_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process.cpu_ns(ended.pid) == 0
    assert process.rss_bytes(ended.pid) == 0


def test_children_run_on_the_given_core_and_we_return_to_ours() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with process.on_core(core):
        told = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert told.stdout.strip() == str({core})
    assert os.sched_getaffinity(0) == before
