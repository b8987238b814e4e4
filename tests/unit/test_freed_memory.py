import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from gateway.memory import keep_freed_memory

def work():
    bodies = [bytes(1 << 20) for _ in range(8)]
    before = bytes(1 << 20)  # so that the others are not all at the end of the heap
    del bodies
    return before

if {kept}:
    keep_freed_memory()
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kept: bool) -> int:
    """Pages that the system had to give to a process that takes and frees 9 MiB ten times."""
    script = FAULTS.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_memory_that_large_bodies_have_freed_is_there_for_the_next_ones() -> None:
    assert faults(kept=True) < 1000 < faults(kept=False)
