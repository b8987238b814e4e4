"""The command in this process, as its entry point runs it."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gateway.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str


Steplane = Callable[..., Outcome]


@pytest.fixture
def steplane(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Steplane:
    """Runs `steplane ARGUMENTS` and tells how it ended; `stdin` is what it can read there."""

    def run(*arguments: object, stdin: bytes | None = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["steplane", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return run
