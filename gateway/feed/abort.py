"""Tells an engine to drop requests that nobody waits for any more.

Closing the connection is enough for a stream; a non-streamed request runs on in SGLang 0.5.23 until its next look at
the connection, up to 4 s later (managers/tokenizer_manager.py). SGLang's `/abort_request` takes every id that begins
with the given one; a step feed's `/abort` means exactly one. Best effort: a failed abort is logged, never raised.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import structlog

from gateway.feed.reach import Reach
from gateway.feed.session import ReplicaSession

log = structlog.get_logger("steplane.feed")

_TIMEOUT_S = 5.0
_KEEP_S = 4.0
_LIMIT_PER_HOST = 16
_MAX_PENDING = 1000
_REASON = "nobody waits for the answer any more"


class Target(Protocol):
    """What is needed of a replica."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class FeedDoor:
    """Where a step feed that speaks is, without a trailing slash, and what it wants to be shown."""

    url: str
    headers: Mapping[str, str]


class Aborts:
    """Sends aborts in the background over one session. All methods belong to one event loop.

    feed_of: gives what is needed to ask a replica's step feed; None where it has none that speaks.
    """

    def __init__(self, reach: Reach | None = None, feed_of: Callable[[str], FeedDoor | None] = lambda _: None) -> None:
        self._feed_of = feed_of
        self._session = ReplicaSession(
            "abort", reach or Reach(), keep_s=_KEEP_S, limit_per_host=_LIMIT_PER_HOST, total_s=_TIMEOUT_S
        )
        self._pending: set[asyncio.Task[None]] = set()

    def abort(self, replica: Target, ids: tuple[str, ...]) -> None:
        """Ask `replica` to end all requests whose ids begin with one of `ids`; returns at once."""
        bodies = [{"rid": engine_id} for engine_id in ids]
        self._begin(replica, replica.url + "/abort_request", bodies, 200, {})

    def abort_exactly(self, replica: Target, ids: tuple[str, ...]) -> None:
        """Ask the step feed of `replica` to end the requests with these `ids`; without one, nothing is done."""
        door = self._feed_of(replica.name)
        if door is not None:
            bodies = [{"rid": engine_id, "reason": _REASON} for engine_id in ids]
            self._begin(replica, door.url + "/abort", bodies, 202, door.headers)

    def _begin(
        self, replica: Target, url: str, bodies: list[dict[str, str]], wanted: int, headers: Mapping[str, str]
    ) -> None:
        if len(self._pending) >= _MAX_PENDING:
            log.warning("abort_dropped", replica=replica.name, pending=len(self._pending))
            return
        task = asyncio.get_running_loop().create_task(self._send(replica, url, bodies, wanted, headers))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Drop what is still pending."""
        for task in tuple(self._pending):
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self._session.close()

    async def _send(
        self, replica: Target, url: str, bodies: list[dict[str, str]], wanted: int, headers: Mapping[str, str]
    ) -> None:
        for body in bodies:
            try:
                async with self._session.post(url, json=body, headers=headers) as response:
                    if response.status != wanted:
                        log.warning("abort_failed", replica=replica.name, status=response.status)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("abort_failed", replica=replica.name, error=str(error) or type(error).__name__)
                return
