"""Tells an SGLang engine to drop requests that nobody waits for any more.

Closing the connection is enough for a stream; a non-streamed request runs on in SGLang 0.5.23 until its next look at
the connection, up to 4 s later (managers/tokenizer_manager.py). Best effort: a failed abort is logged, never raised.
"""

import asyncio
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


class Target(Protocol):
    """What is needed of a replica."""

    name: str
    url: str


class Aborts:
    """Sends aborts in the background over one session. All methods belong to one event loop."""

    def __init__(self, reach: Reach | None = None) -> None:
        self._session = ReplicaSession(
            "abort", reach or Reach(), keep_s=_KEEP_S, limit_per_host=_LIMIT_PER_HOST, total_s=_TIMEOUT_S
        )
        self._pending: set[asyncio.Task[None]] = set()

    def abort(self, replica: Target, ids: tuple[str, ...]) -> None:
        """Ask `replica` to end the requests it knows by `ids`; returns at once."""
        if len(self._pending) >= _MAX_PENDING:
            log.warning("abort_dropped", replica=replica.name, pending=len(self._pending))
            return
        task = asyncio.get_running_loop().create_task(self._send(replica, ids))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def close(self) -> None:
        """Drop what is still pending."""
        for task in tuple(self._pending):
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self._session.close()

    async def _send(self, replica: Target, ids: tuple[str, ...]) -> None:
        for engine_id in ids:
            try:
                async with self._session.post(replica.url + "/abort_request", json={"rid": engine_id}) as response:
                    if response.status != 200:
                        log.warning("abort_failed", replica=replica.name, status=response.status)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.warning("abort_failed", replica=replica.name, error=str(error) or type(error).__name__)
                return
