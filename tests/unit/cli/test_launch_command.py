"""`steplane replica launch` as a process of its own: it becomes the launcher."""

import subprocess
import sys


def launched(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.cli", "replica", "launch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_with_its_reasons_is_printed() -> None:
    done = launched("--pool", "grammar", "--engine", "sglang", "--dry-run", "--", "--model-path", "a b")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# ")
    assert "-m sglang.launch_server --model-path 'a b'" in done.stdout


def test_what_can_not_be_started_is_one_line_on_stderr() -> None:
    done = launched("--pool", "none", "--engine", "sglang", "--", "--x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("steplane: there is no profile for a pool 'none'")
