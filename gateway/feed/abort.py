"""Tells an engine to drop requests that nobody waits for any more.

Closing the connection is enough for a stream; a non-streamed request runs on in SGLang 0.5.23 until its next look at
the connection, up to 4 s later (managers/tokenizer_manager.py). SGLang's `/abort_request` takes every id that begins
with the given one; a step feed's `/abort` means exactly one. Best effort: a failed abort is logged, never raised.

Clients may leave by the thousand in one moment. Then engines hear of the closed connections first, which comes for
next to nothing; aborts follow a few at a time, so that the requests of others go on in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import structlog

from gateway.feed.reach import Reach
from gateway.feed.session import ReplicaSession

log = structlog.get_logger("steplane.feed")

_WITHIN_S = 5.0
"""Later the engine has noticed by itself."""
_KEEP_S = 4.0
_AT_A_TIME = 4
"""For one replica."""
_MOST_WAITING = 20_000
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


class _Line:
    """The aborts that wait to be sent to one place. `failed`: one has, and that was said."""

    __slots__ = ("failed", "headers", "replica", "senders", "url", "waiting", "wanted")

    def __init__(self, replica: str, url: str, wanted: int, headers: Mapping[str, str]) -> None:
        self.replica = replica
        self.url = url
        self.wanted = wanted
        self.headers = headers
        self.waiting: deque[tuple[float, dict[str, str]]] = deque()
        """Until when each is of use, and what is sent."""
        self.senders = 0
        self.failed = False


class Aborts:
    """Sends aborts in the background over one session. All methods belong to one event loop.

    feed_of: gives what is needed to ask a replica's step feed; None where it has none that speaks.
    """

    def __init__(self, reach: Reach | None = None, feed_of: Callable[[str], FeedDoor | None] = lambda _: None) -> None:
        self._feed_of = feed_of
        self._session = ReplicaSession("abort", reach or Reach(), keep_s=_KEEP_S, total_s=_WITHIN_S)
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, _Line] = {}
        """By URL, those where something waits or is being sent."""
        self._waiting = 0
        self._full = False
        self._sending: set[asyncio.Task[None]] = set()

    def abort(self, replica: Target, ids: tuple[str, ...]) -> None:
        """Ask `replica` to end all requests whose ids begin with one of `ids`; returns at once."""
        self._add(replica, replica.url + "/abort_request", 200, {}, [{"rid": engine_id} for engine_id in ids])

    def abort_exactly(self, replica: Target, ids: tuple[str, ...]) -> None:
        """Ask the step feed of `replica` to end the requests with these `ids`; without one, nothing is done."""
        door = self._feed_of(replica.name)
        if door is not None:
            bodies = [{"rid": engine_id, "reason": _REASON} for engine_id in ids]
            self._add(replica, door.url + "/abort", 202, door.headers, bodies)

    async def close(self) -> None:
        """Drop what is still pending."""
        for task in tuple(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        await self._session.close()

    def _add(
        self, replica: Target, url: str, wanted: int, headers: Mapping[str, str], bodies: Iterable[dict[str, str]]
    ) -> None:
        line = self._lines.get(url) or _Line(replica.name, url, wanted, headers)
        until_s = self._loop.time() + _WITHIN_S
        for body in bodies:
            if self._waiting >= _MOST_WAITING:
                if not self._full:
                    self._full = True
                    log.warning("aborts_dropped", replica=replica.name, waiting=self._waiting)
                break
            line.waiting.append((until_s, body))
            self._waiting += 1
        if line.senders < _AT_A_TIME and line.waiting:
            self._lines[url] = line
            line.senders += 1
            task = self._loop.create_task(self._send_all(line))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_all(self, line: _Line) -> None:
        try:
            while line.waiting:
                until_s, body = line.waiting.popleft()
                self._waiting -= 1
                self._full = self._full and self._waiting > 0
                if self._loop.time() < until_s:
                    await self._send(line, body)
        finally:
            line.senders -= 1
            if not line.senders and not line.waiting:
                self._lines.pop(line.url, None)

    async def _send(self, line: _Line, body: dict[str, str]) -> None:
        try:
            async with self._session.post(line.url, json=body, headers=line.headers) as response:
                if response.status != line.wanted:
                    self._failed(line, status=response.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._failed(line, error=str(error) or type(error).__name__)

    def _failed(self, line: _Line, **why: object) -> None:
        """Said once, until nothing is left to be sent there: what fails, fails for all of them."""
        if not line.failed:
            line.failed = True
            log.warning("abort_failed", replica=line.replica, **why)
