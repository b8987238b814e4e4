"""Hot reload: reads the configuration again when it is asked to or its files change, and has the gateway take it over.

Owns when and how often. Reading is control/reading.py's, taking over is the gateway's. What is wrong stays out: the old
configuration remains in force, and the log, the metrics and the API say why.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import structlog
from watchfiles import awatch

from gateway.control.config import Config
from gateway.control.reading import packed, read_beside
from gateway.control.reloads import Outcome, Reloads, Report
from gateway.wire.filestamps import FileStamps

log = structlog.get_logger("steplane.config")

_SHOWN = 50
"""Changes that are logged one by one."""
_CONFIG_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_LOOK_MS = 250
"""How often the watcher's thread wakes up."""
_UNTOLD_MS = 5000
"""Files are looked at so often in any case: a change before the watch began is not told, nor are some file systems'."""
_SETTLE_MS = 1000
"""How long changes are collected at most: an editor, or a mounted ConfigMap, makes several at once."""


class Reloading:
    """See the module. A `control.reloads.Reloader`."""

    def __init__(
        self,
        config: Config,
        source: Path | None,
        apply: Callable[[Config], Awaitable[None]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`source`: the file that `config` was read from; without one there is nothing to reload."""
        self.reloads = Reloads(source, wall(), wall)
        self._config = config
        self._current = packed(config) if source is not None else b""
        self._apply = apply
        self._wall = wall
        self._one_at_a_time = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[Report]] = set()

    def start(self) -> None:
        """Watch the files, if the configuration wants it."""
        if self._is_wanted() and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch(), name="configuration files")

    async def close(self) -> None:
        """Stop watching; a reload that runs is given up."""
        tasks = [*self._asked, *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def request(self, trigger: str) -> None:
        """Reload as soon as may be; returns at once. For signals."""
        task = asyncio.get_running_loop().create_task(self.reload(trigger), name="reload")
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def reload(self, trigger: str, *, check: bool = False) -> Report:
        """Read the file again and apply it; `check`: only say what would come of it. Raises nothing."""
        async with self._one_at_a_time:
            asked = Report(Outcome.failed, trigger, self._wall(), 0.0)
            began = time.perf_counter()
            try:
                done = await self._done(asked, check)
            except OSError as error:
                done = replace(asked, error=str(error))
            except Exception as error:
                log.exception("config_reload_broken")
                done = replace(asked, error=f"{type(error).__name__}: {error}")
            done = replace(done, took_s=time.perf_counter() - began)
            self.reloads.count(done, check=check)
            self._tell(done)
            self.start()
            return done

    async def _done(self, asked: Report, check: bool) -> Report:
        source = self.reloads.source
        if source is None:
            return replace(asked, error="this gateway was not started from a configuration file")
        reading = await read_beside(source, self._current)
        config = reading.config
        if config is None:
            return replace(asked, outcome=Outcome.refused, problems=reading.problems)
        found = replace(asked, changes=reading.changes, warnings=config.warnings)
        if check:
            return replace(found, outcome=Outcome.checked)
        # Without a change, too: files that the configuration names may hold something else.
        await self._apply(config)
        self._config = config
        self._current = reading.packed
        taken = any(not change.restart for change in reading.changes)
        return replace(found, outcome=Outcome.applied if taken else Outcome.unchanged)

    def _is_wanted(self) -> bool:
        return self.reloads.source is not None and self._config.reload.watch

    async def _watch(self) -> None:
        """Reload when a file of the configuration has changed."""
        while self._is_wanted():
            files, folders = self._places()
            stamps = await asyncio.to_thread(FileStamps, files)
            with contextlib.suppress(FileNotFoundError):  # a folder has gone: look again at what there is
                async for changes in awatch(
                    *folders,
                    recursive=False,
                    debounce=_SETTLE_MS,
                    step=_LOOK_MS,
                    rust_timeout=_UNTOLD_MS,
                    yield_on_timeout=True,
                    watch_filter=None,
                ):
                    changed = await asyncio.to_thread(stamps.changed)
                    if changed or any(_concerns(Path(path), files) for _, path in changes):
                        await self.reload("file")
                        if not self._is_wanted() or self._places() != (files, folders):
                            break
            await asyncio.sleep(_LOOK_MS / 1000)

    def _places(self) -> tuple[frozenset[Path], tuple[Path, ...]]:
        """The files that count, and the folders in which they, or further ones, are."""
        source = self.reloads.source
        assert source is not None
        files = frozenset({source.absolute(), *(Path(file).absolute() for file in self._config.files)})
        patterns = [(source.parent / pattern).parent for pattern in self._config.include]
        folders = {folder.absolute() for folder in (*(file.parent for file in files), *patterns) if folder.is_dir()}
        return files, tuple(sorted(folders))

    def _tell(self, report: Report) -> None:
        said: dict[str, object] = {
            "source": str(self.reloads.source),
            "trigger": report.trigger,
            "outcome": report.outcome.value,
            "took_ms": round(report.took_s * 1e3),
        }
        if not report.outcome.is_good:
            log.error("config_reload", **said, why=report.why)
            return
        shown = [str(change) for change in report.changes[:_SHOWN]]
        log.info("config_reload", **said, changes=len(report.changes), changed=shown)
        if report.restart:
            log.warning("config_needs_restart", keys=list(report.restart))
        for warning in report.warnings:
            log.warning("configuration", problem=str(warning))


def _concerns(path: Path, files: frozenset[Path]) -> bool:
    """Whether a change at `path` may be one of the configuration.

    An included file may be new; a ConfigMap that is mounted is replaced as a whole by a link named `..data`.
    """
    name = path.name
    return path in files or name == "..data" or (path.suffix in _CONFIG_SUFFIXES and not name.startswith("."))
