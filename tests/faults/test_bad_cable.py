"""A replica whose packets vanish, all of them or one in a hundred, on a line between two network namespaces."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def _forbidden() -> str | None:
    """Why there can be no namespace with a TUN device here, if so."""
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tries = ["ip", "tuntap", "add", "dev", "here", "mode", "tun"]
    tried = subprocess.run(["unshare", "-n", *tries], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespace with a TUN device: {tried.stderr.strip()}"


@pytest.mark.parametrize("cable", ["pulled", "lossy"])
def test_a_replica_at_the_end_of_a_bad_cable_loses_nothing_that_could_be_saved(cable: str) -> None:
    """What must hold of each cable is told in island.py, which runs in the namespace."""
    if reason := _forbidden():
        pytest.skip(reason)
    words = ["unshare", "-n", sys.executable, "-m", "tests.faults.island", cable]
    island = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert island.returncode == 0, island.stdout[-3000:] + island.stderr[-5000:]
