"""The wheel of `python -m build`: installs without a compiler, serves a request, leaves nothing when it goes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gateway import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = ("gateway", "replica", "loadtest", "config", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
REQUEST = {"model": "steplane-simulator", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | variables, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, and the wheel that was built from it: what is not in the one can't be in the other."""
    folder = tmp_path_factory.mktemp("package")
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
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [wheel] = dist.glob("*.whl")
    return wheel


class Environment:
    """An empty virtual environment, and what was in it before anything was installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", folder)
        self.empty = self.files()

    def files(self) -> set[Path]:
        return {path for path in self.folder.rglob("*") if "__pycache__" not in path.parts}

    def pip(self, *arguments: str | Path, **variables: str) -> str:
        return run(self.folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments, **variables)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    # Wheels alone: a dependency that would have to be compiled fails here.
    environment.pip("install", "--quiet", "--only-binary", ":all:", f"{wheel}[simulator]", **NO_COMPILER)
    return environment


def test_the_wheel_is_for_every_machine_and_says_what_it_is(wheel: Path, dist: Path) -> None:
    assert wheel.name == f"steplane-{__version__}-py3-none-any.whl"
    assert (dist / f"steplane-{__version__}.tar.gz").exists()


def test_the_licence_comes_along(environment: Environment) -> None:
    [licence] = environment.folder.rglob(f"steplane-{__version__}.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text()


def test_it_says_its_version(environment: Environment) -> None:
    assert run(environment.folder / "bin" / "steplane", "--version") == f"steplane {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_its_commands(environment: Environment, shell: str) -> None:
    assert "_STEPLANE_COMPLETE" in run(environment.folder / "bin" / "steplane", "--show-completion", shell)


def test_up_serves_a_request(environment: Environment, tmp_path: Path) -> None:
    up = subprocess.Popen(
        [environment.folder / "bin" / "steplane", "up", "--port", "0", "--admin-port", "0"],
        cwd=tmp_path,  # away from the sources
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert up.stdout is not None
        said = ""
        for line in up.stdout:
            said += line
            if "Ctrl-C stops everything" in line:
                break
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None, said
        request = urllib.request.Request(
            f"{found[0]}/v1/chat/completions",
            data=json.dumps(REQUEST).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.headers["x-steplane-pool"] == "interactive"
            assert json.load(reply)["choices"][0]["message"]["content"]
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate()


def test_it_leaves_nothing(environment: Environment) -> None:
    """Runs last: it takes away what the others use."""
    names = [each["name"] for each in json.loads(environment.pip("list", "--format", "json"))]
    others = [name for name in names if name not in ("pip", "setuptools")]
    assert "steplane" in others
    environment.pip("uninstall", "--quiet", "--yes", *others)
    assert environment.files() - environment.empty == set()
