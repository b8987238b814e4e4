"""Reads and checks a configuration in a process of its own, and compares it with the one in force.

A gateway of a thousand replicas spends 0.1 s on that, in pieces that hold the interpreter for tens of milliseconds: a
thread would hold up the requests as well. What comes back is in small parts, for the same reason. The process runs
`main`, with the configuration in force on its stdin.
"""

import asyncio
import io
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from gateway import __version__
from gateway.control.changes import LIVE, Change, changes_between
from gateway.control.config import Config, load_config
from gateway.control.problem import ConfigError, Problem

_PART = 50
"""Replicas, or rules, in a part."""
_NICE = 10
_LONGEST_S = 60.0
_PACKAGES = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class Reading:
    """What became of it.

    config:   what is to be in force; None where `problems` say why not. Its parts that need a restart are those of the
              one in force: they are named again each time until there was one.
    changes:  of the file against the one in force.
    packed:   `config` for the next comparison.
    """

    config: Config | None
    problems: tuple[Problem, ...] = ()
    changes: tuple[Change, ...] = ()
    packed: bytes = b""


async def read_beside(path: Path, current: bytes) -> Reading:
    """Read and check a file, while the loop goes on. `current`: the configuration in force, by `packed`.

    Raises OSError where no process can be had, or it does not do what it should.
    """
    # It comes after whoever serves requests.
    work = f"import os; os.nice({_NICE}); from {__name__} import main; main()"
    command = [sys.executable, "-c", work, str(path), __version__]
    search = os.pathsep.join([_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": search}

    def run() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, input=current, env=environment, capture_output=True, timeout=_LONGEST_S)  # noqa: S603, PLW1510

    try:
        ended = await asyncio.to_thread(run)
    except subprocess.TimeoutExpired:
        raise OSError(f"reading {path} took longer than {_LONGEST_S:g} s") from None
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"the process that reads {path} ended with status {ended.returncode}: {said}")
    return await _unpacked(io.BytesIO(ended.stdout))


def packed(config: Config) -> bytes:
    """A configuration as bytes. To be made where nobody waits: it takes as long as it is large."""
    return pickle.dumps(config)


def _send(stream: BinaryIO, reading: Reading) -> None:
    """Write it in parts: itself without what can be many, then that."""
    config = reading.config
    if config is None:
        pickle.dump(reading, stream)
        return
    pools = {name: pool.model_copy(update={"replicas": []}) for name, pool in config.pools.items()}
    bare = config.model_copy(update={"pools": pools, "rules": []})
    pickle.dump(replace(reading, config=bare), stream)
    for name, pool in config.pools.items():
        _send_list(stream, name, pool.replicas)
    _send_list(stream, "", config.rules)
    pickle.dump(None, stream)


def _send_list(stream: BinaryIO, name: str, entries: list[Any]) -> None:
    for start in range(0, len(entries), _PART):
        pickle.dump((name, entries[start : start + _PART]), stream)


async def _unpacked(stream: BinaryIO) -> Reading:
    """Put the parts together, with a pause for the requests after each."""
    reading: Reading = pickle.load(stream)  # noqa: S301 (from a process of our own)
    bare = reading.config
    if bare is None:
        return reading
    lists: dict[str, list[Any]] = {name: [] for name in ("", *bare.pools)}
    while (part := pickle.load(stream)) is not None:  # noqa: S301
        lists[part[0]].extend(part[1])
        await asyncio.sleep(0)
    pools = {name: pool.model_copy(update={"replicas": lists[name]}) for name, pool in bare.pools.items()}
    config = bare.model_copy(update={"pools": pools, "rules": lists[""]})
    return replace(reading, config=config)


def _read(path: Path, current: Config) -> Reading:
    try:
        config = load_config(path)
    except ConfigError as error:
        return Reading(None, error.problems)
    changes = changes_between(current, config)
    config = config.model_copy(
        update={name: getattr(current, name) for name in Config.model_fields if name not in LIVE}
    )
    return Reading(config, (), changes, packed(config))


def main() -> None:
    """The process: see the module."""
    if sys.argv[2] != __version__:
        sys.exit(f"steplane {__version__} was installed since steplane {sys.argv[2]} was started: restart it")
    current: Config = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 (from the process that started this one)
    _send(sys.stdout.buffer, _read(Path(sys.argv[1]), current))
