"""A server's name and the addresses it stands for, kept fresh; the last good ones stay while nobody can tell better.

Owns the lookups of one name. Opens no connection; who has connections to addresses that are gone is told.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gateway.wire.address import Address, Resolver

log = structlog.get_logger("steplane.wire")

_LOOKUP_S: Final = 10.0
"""A lookup that takes longer has failed; its thread ends when the system's resolver gives up."""
_AGAIN_S: Final = 1.0
"""After a failed connect, what was asked for since is not doubted, so that a dead replica is no load for DNS."""
_RETRY_S: Final = 5.0
"""After a failed lookup, at the latest."""
_SPREAD: Final = 0.1
"""Share of the time between two lookups that is left to chance, so that many names are not looked up in one turn."""


class Name:
    """What a name resolves to. All methods belong to one event loop; times are of its clock, in seconds.

    addresses: the last good answer; empty before the first.
    due_at:    when they should be looked up again.
    lookups, failures: counted from the start.
    """

    __slots__ = (
        "_failing",
        "_host",
        "_loop",
        "_on_change",
        "_port",
        "_refresh_s",
        "_resolver",
        "_task",
        "addresses",
        "asked_at",
        "due_at",
        "failures",
        "lookups",
    )

    def __init__(
        self, host: str, port: int, resolver: Resolver, refresh_s: float, on_change: Callable[[], None]
    ) -> None:
        """on_change: called when addresses have gone or come, but not at the first answer."""
        self._host = host
        self._port = port
        self._resolver = resolver
        self._refresh_s = refresh_s
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._failing = False
        self._task: asyncio.Task[None] | None = None
        self.addresses: tuple[Address, ...] = ()
        self.asked_at = -math.inf
        self.due_at = -math.inf
        self.lookups = 0
        self.failures = 0

    async def fresh(self) -> Sequence[Address]:
        """The addresses; waits for a lookup if they are too old. Raises OSError where there have never been any."""
        if self._loop.time() >= self.due_at:
            await self._wait(self.refresh())
        if not self.addresses:
            raise OSError(f"the name {self._host} does not resolve")
        return self.addresses

    async def doubted(self, patience_s: float) -> Sequence[Address]:
        """After nothing could be reached: the addresses if they turn out to be others, else none.

        Waits `patience_s` for it at most; a lookup that takes longer goes on.
        """
        before = self.addresses
        if self._task is None and self._loop.time() - self.asked_at < _AGAIN_S:
            return ()
        await asyncio.wait((self.refresh(),), timeout=patience_s)
        return self.addresses if set(self.addresses) != set(before) else ()

    def refresh(self) -> asyncio.Task[None]:
        """Look the name up in the background, once for all who ask."""
        if self._task is None:
            self._task = self._loop.create_task(self._look_up())
        return self._task

    def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()

    @staticmethod
    async def _wait(task: asyncio.Task[None]) -> None:
        """Whoever waits may be cancelled; the lookup, which others wait for too, goes on."""
        await asyncio.wait((task,))

    async def _look_up(self) -> None:
        self.lookups += 1
        self.asked_at = self._loop.time()
        try:
            async with asyncio.timeout(_LOOKUP_S):
                found = await self._resolver.resolve(self._host, self._port)
            if not found:
                raise OSError("no address")
        except (OSError, UnicodeError, TimeoutError) as error:  # UnicodeError: it is no name that could be looked up
            self.failures += 1
            self.due_at = self._loop.time() + min(self._refresh_s, _RETRY_S)
            if not self._failing:  # said once, not every five seconds
                self._failing = True
                words = str(error) or "no answer in time"
                log.warning("name_not_resolved", host=self._host, error=words, kept=len(self.addresses))
        else:
            if self._failing:
                self._failing = False
                log.info("name_resolved_again", host=self._host)
            self.due_at = self._loop.time() + self._refresh_s * random.uniform(1.0 - _SPREAD, 1.0)
            before, self.addresses = self.addresses, tuple(found)
            if before and set(before) != set(self.addresses):
                log.info("name_moved", host=self._host, addresses=[str(address) for address in self.addresses])
                self._on_change()
        finally:
            self._task = None
