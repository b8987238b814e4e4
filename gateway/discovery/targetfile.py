"""Members from a file that something else writes, in the form of Prometheus' `file_sd`: JSON or YAML, watched.

    [{"targets": ["10.0.0.7:30000", "http://10.0.0.8:30000"], "labels": {"zone": "a", "weight": "2"}}]

A target is an address or a URL. Of the labels count `name` (for a single target), `weight` and `zone`.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from watchfiles import awatch

from gateway.discovery.member import Failed, Found, Member

_SETTLE_MS = 200
_LOOK_MS = 100
_UNTOLD_MS = 2000
"""It is read as often in any case: a change before the watch began is not told, nor one on some file systems."""
_AGAIN_S = 5.0
"""While the file's folder is missing it is looked for so often."""


class TargetFile:
    """A `Producer`."""

    def __init__(self, path: Path, scheme: str) -> None:
        """`scheme`: of targets that are no URLs."""
        self._path = path.absolute()
        self._scheme = scheme

    async def run(self, found: Found, failed: Failed) -> None:
        """Read it now and when it changes; while it is wrong or missing, what it said last holds."""
        known: Sequence[Member] | None = None
        while True:
            known = await self._read(known, found, failed)
            with contextlib.suppress(FileNotFoundError):
                async for _ in awatch(
                    self._path.parent,
                    recursive=False,
                    debounce=_SETTLE_MS,
                    step=_LOOK_MS,
                    rust_timeout=_UNTOLD_MS,
                    yield_on_timeout=True,
                    watch_filter=None,
                ):
                    known = await self._read(known, found, failed)
            await asyncio.sleep(_AGAIN_S)

    async def _read(self, known: Sequence[Member] | None, found: Found, failed: Failed) -> Sequence[Member] | None:
        try:
            members = await asyncio.to_thread(read_targets, self._path, self._scheme)
        except (OSError, ValueError) as error:
            failed(str(error))
            return known
        failed(None)
        if members != known:
            await found(members)
        return members


def read_targets(path: Path, scheme: str) -> list[Member]:
    """The members that a file names. Raises OSError or ValueError, with a message that names the file."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is neither JSON nor YAML: {error}") from None
    if not isinstance(document, list):
        raise ValueError(f"{path}: expected a list of groups, each with `targets`")
    try:
        return [member for group in document for member in _members(group, scheme)]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _members(group: Any, scheme: str) -> Iterator[Member]:
    targets = group.get("targets") if isinstance(group, dict) else None
    labels = (group.get("labels") or {}) if isinstance(group, dict) else {}
    if not isinstance(targets, list) or not isinstance(labels, dict):
        raise ValueError(f"expected a group with `targets`, a list, and perhaps `labels`, found {group!r}")
    weight = None if "weight" not in labels else _weight(labels["weight"])
    name = str(labels["name"]) if "name" in labels and len(targets) == 1 else None
    for target in targets:
        if not isinstance(target, str) or not target:
            raise ValueError(f"expected a target such as 10.0.0.7:30000, found {target!r}")
        url = target if "://" in target else f"{scheme}://{target}"
        yield Member(url, name, weight, str(labels.get("zone", "")))


def _weight(value: object) -> float:
    try:
        weight = float(str(value))
    except ValueError:
        weight = 0.0
    if not 0 < weight < float("inf"):
        raise ValueError(f"expected a weight above 0, found {value!r}")
    return weight
