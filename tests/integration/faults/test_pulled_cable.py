"""A replica whose packets vanish: nobody refuses, nobody resets, nobody answers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def _forbidden() -> str | None:
    """Why there can be no network namespaces here, if so."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"],
        capture_output=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"no network namespaces: {tried.stderr.decode(errors='replace').strip()}"


def test_a_replica_behind_a_pulled_cable_is_given_up_and_taken_back() -> None:
    if reason := _forbidden():
        pytest.skip(reason)
    words = ["unshare", "-n", sys.executable, "-m", "tests.integration.faults.island"]
    island = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert island.returncode == 0, island.stdout[-3000:] + island.stderr[-5000:]
