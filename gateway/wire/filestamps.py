"""Whether files that others write have changed, told without reading them. Looks; does not watch."""

from __future__ import annotations

import os
from collections.abc import Iterable


class FileStamps:
    """What tells one content of some files from another: changes when a file is written, replaced, made or removed.

    Kubernetes replaces what a link leads to; that is a change, too. A look takes microseconds on a local disk.
    """

    def __init__(self, files: Iterable[str | os.PathLike[str]]) -> None:
        """Looks for the first time, so: made before the files are read."""
        self._files = tuple(files)
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether any has changed since this was last asked."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> list[tuple[int, int, int]]:
        stamps: list[tuple[int, int, int]] = []
        for file in self._files:
            try:
                found = os.stat(file)
            except OSError:
                stamps.append((0, 0, 0))  # of one that is missing, nothing
            else:
                stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
        return stamps
