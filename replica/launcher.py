"""`steplane replica launch --pool POOL -- ARGUMENTS`: starts an engine with the flags that suit its pool.

Owns the profiles (`config/profiles/*.yaml`) and how they are joined with what the user wrote: the user's flags and
variables always win. Prints the command that it runs, and why each flag is there. Knows no engine beyond its command.
"""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENGINES: dict[str, tuple[str, ...]] = {
    "sglang": ("-m", "sglang.launch_server"),
    "vllm": ("-m", "vllm.entrypoints.openai.api_server"),
}


class LaunchError(Exception):
    """Why nothing was started, and what to do."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag (`value` None: a bare one) or a variable that a profile sets, and why."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Profile:
    """What one pool's replicas of one engine are started with."""

    pool: str
    flags: tuple[Setting, ...]
    variables: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """A command and what is added to its environment; `notes` say why, in the order of the additions."""

    command: tuple[str, ...]
    variables: dict[str, str]
    notes: tuple[str, ...]

    def text(self) -> str:
        """For people, and for a shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        lines = [f"# {note}" for note in self.notes]
        return "\n".join([*lines, " ".join([*words, shlex.join(self.command)])])


def plan(pool: str, engine: str | None, arguments: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Join a pool's profile with the user's `arguments`: flags alone, or a whole command. LaunchError: it can't be."""
    command = list(arguments)
    engine = engine or _engine_of(command)
    if not command or command[0].startswith("-"):
        command = [sys.executable, *ENGINES[engine], *command]
    profile = load_profile(pool, engine)
    given = {word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("--")}
    notes: list[str] = []
    for setting in profile.flags:
        if setting.name.replace("_", "-") in given:
            notes.append(f"{setting.name}: as you wrote it; the profile {pool!r} has {setting.value or 'it set'}")
            continue
        command += [setting.name] if setting.value is None else [setting.name, setting.value]
        notes.append(f"{setting.name}{'' if setting.value is None else ' ' + setting.value}: {setting.why}")
    variables: dict[str, str] = {}
    for setting in profile.variables:
        if setting.name in environment:
            notes.append(f"{setting.name}: as your environment has it; the profile {pool!r} has {setting.value}")
        elif setting.value is not None:
            variables[setting.name] = setting.value
            notes.append(f"{setting.name}={setting.value}: {setting.why}")
    return Launch(tuple(command), variables, tuple(notes))


def launch(pool: str, engine: str | None, arguments: Sequence[str], *, dry_run: bool) -> None:
    """Print the command and become it; with `dry_run` only print it."""
    planned = plan(pool, engine, arguments, os.environ)
    sys.stdout.write(planned.text() + "\n")
    sys.stdout.flush()
    if dry_run:
        return
    try:
        os.execvpe(planned.command[0], planned.command, os.environ | planned.variables)  # noqa: S606 - it is the point
    except OSError as error:
        raise LaunchError(f"{planned.command[0]} cannot be run: {error.strerror or error}") from error


def load_profile(pool: str, engine: str) -> Profile:
    """The shipped profile of a pool. LaunchError: there is none, or it is not as it should be."""
    import yaml

    folder = profiles_folder()
    path = folder / f"{pool}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml"))) or "none"
        raise LaunchError(f"there is no profile for a pool {pool!r} in {folder}; there are: {known}")
    try:
        document = yaml.safe_load(path.read_text())
        own = document[engine]
        flags = tuple(_setting(entry["flag"], entry) for entry in own.get("flags") or ())
        variables = (own.get("environment") or {}) | (document.get("environment") or {})
        return Profile(pool, flags, tuple(_setting(name, entry) for name, entry in variables.items()))
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise LaunchError(
            f"{path}: expected `{engine}: {{flags: [{{flag, value, why}}], environment: {{NAME: {{value, why}}}}}}` "
            f"and `environment`: {type(error).__name__}: {error}"
        ) from error


def profiles_folder() -> Path:
    """In a checkout beside the package, in an installed wheel among what is shipped with it."""
    root = Path(__file__).resolve().parents[1]
    shipped = root / "gateway" / "shipped" / "profiles"
    return shipped if shipped.is_dir() else root / "config" / "profiles"


def _setting(name: str, entry: dict[str, Any]) -> Setting:
    value = entry.get("value")
    return Setting(name, None if value is None else str(value), str(entry["why"]))


def _engine_of(command: Sequence[str]) -> str:
    """Which engine a command is for: the one it names, else the one that is installed."""
    words = [] if not command or command[0].startswith("-") else command[:4]
    for engine in ENGINES:
        if any(engine in Path(word).name for word in words):
            return engine
    if words:
        raise LaunchError(f"{shlex.join(words)} names neither sglang nor vllm; say which with --engine")
    installed = [engine for engine in ENGINES if importlib.util.find_spec(engine) is not None]
    if len(installed) != 1:
        what = "both sglang and vllm" if installed else "neither sglang nor vllm"
        raise LaunchError(f"{sys.executable} has {what} installed; say which with --engine, or write the whole command")
    return installed[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m replica.launcher --pool POOL [--engine ENGINE] [--dry-run] -- ARGUMENTS`; 1 where nothing starts."""
    parser = argparse.ArgumentParser(prog="steplane replica launch", description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("arguments", nargs="*", metavar="-- ARGUMENTS")
    options = parser.parse_args(arguments)
    try:
        launch(options.pool, options.engine, options.arguments, dry_run=options.dry_run)
    except LaunchError as error:
        sys.stderr.write(f"steplane: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
