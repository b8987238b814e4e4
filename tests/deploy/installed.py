"""Steplane as people get it: built, and installed into an empty environment, away from the sources."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = ("gateway", "replica", "loadtest", "config", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """What it prints. Fails where it does."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | variables,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path) -> Path:
    """The wheel, beside the source distribution it was built from: what is not in the one can't be in the other."""
    source = folder / "source"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in SOURCES:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=ignored)
        else:
            shutil.copy(path, source / name)
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", source)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


class Environment:
    """An empty virtual environment, and what was in it before anything was installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", folder)
        self.empty = self.files()

    @property
    def command(self) -> Path:
        """`steplane`, once it is installed."""
        return self.folder / "bin" / "steplane"

    def files(self) -> set[Path]:
        return {path for path in self.folder.rglob("*") if "__pycache__" not in path.parts}

    def pip(self, *arguments: str | Path, **variables: str) -> str:
        return run(self.folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments, **variables)


@contextmanager
def up(environment: Environment, folder: Path) -> Iterator[tuple[str, str]]:
    """`steplane up` in a folder, on free ports: the URLs of clients and of the admin port."""
    process = subprocess.Popen(
        [environment.command, "up", "--port", "0", "--admin-port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C stops everything" in line:
                break
        urls = [re.search(rf"{name} +(http://127\.0\.0\.1:\d+)", said) for name in ("clients", "admin")]
        assert all(urls), said
        yield urls[0][1], urls[1][1]  # type: ignore[index]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
