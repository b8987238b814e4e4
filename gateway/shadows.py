"""Copies of requests that go to another pool, to see how it would do; their answers are thrown away.

Nobody waits for a copy, and it is nobody's budget but that of the pool that it goes to: where there is no room for it
there, or as many run as may, there is none. It has an HTTP client of its own, so that the data plane knows nothing of
it. Bodies are shared with the original, not copied.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import structlog
from aiohttp import ClientError
from multidict import CIMultiDict

from gateway.call import Link
from gateway.control.tally import Tally
from gateway.feed.reach import Reach
from gateway.feed.session import ReplicaSession
from gateway.routing.actions import Shadow
from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.share import Share
from gateway.tenants.keys import without_keys

log = structlog.get_logger("steplane.shadows")

_NOT_SENT = frozenset((b"host", b"content-length", b"expect", b"transfer-encoding"))
_KEEP_S = 3.0
"""Below the idle limit of the engines' servers (uvicorn: 5 s)."""


class Shadows:
    """The copies of one gateway. `links` are by replica, always as they are."""

    def __init__(self, links: Mapping[Replica, Link], tally: Tally, reach: Reach) -> None:
        self._links = links
        self._tally = tally
        self._reach = reach
        self._session: ReplicaSession | None = None
        self._shares: dict[Shadow, Share] = {}
        self._running: dict[Shadow, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self, shadow: Shadow, pool: Pool, target: str, lines: bytes, body: bytes, step_us: float, structured: bool
    ) -> None:
        """Send a copy, if this is one of the share and there is room for it. Never fails, and takes 20 µs or less.

        target: of the request line. lines: header lines, each ended by CRLF. step_us, structured: what it books.
        """
        share = self._shares.get(shadow)
        if share is None:
            share = self._shares[shadow] = Share(shadow.pool, shadow.share * 100.0)
        if not share.turn():
            return
        if self._running.get(shadow, 0) >= shadow.max_running:
            self._count(shadow, "too_many")
            return
        replica = pool.find(step_us, structured)
        if replica is None or replica.on_trial:  # a trial is for a request whose outcome the breaker hears of
            self._count(shadow, "no_room")
            return
        pool.book(replica, step_us, structured)
        self._running[shadow] = self._running.get(shadow, 0) + 1
        task = asyncio.ensure_future(self._run(shadow, replica, target, lines, body))
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, shadow, pool, replica, step_us, structured))

    async def close(self) -> None:
        """End all copies."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _run(self, shadow: Shadow, replica: Replica, target: str, lines: bytes, body: bytes) -> None:
        if self._session is None:
            self._session = ReplicaSession("shadow", self._reach, keep_s=_KEEP_S, total_s=None)
        link = self._links.get(replica)
        credentials = b"" if link is None else link.terms.credentials
        if credentials:
            lines = without_keys(lines) + credentials
        headers = CIMultiDict(_headers(lines.split(b"\r\n")))
        try:
            async with asyncio.timeout(shadow.timeout_s):
                async with self._session.post(replica.url + target, data=body, headers=headers) as response:
                    async for _ in response.content.iter_any():
                        pass
            self._count(shadow, f"{response.status // 100}xx")
        except TimeoutError:
            self._count(shadow, "timeout")
        except (ClientError, OSError, ValueError) as error:
            self._count(shadow, "failed")
            log.info("shadow_failed", replica=replica.name, error=str(error))

    def _ended(
        self,
        task: asyncio.Task[None],
        shadow: Shadow,
        pool: Pool,
        replica: Replica,
        step_us: float,
        structured: bool,
    ) -> None:
        self._tasks.discard(task)
        self._running[shadow] -= 1
        pool.release(replica, step_us, structured)
        if not task.cancelled() and task.exception() is not None:
            log.error("shadow_failed", replica=replica.name, error=repr(task.exception()))

    def _count(self, shadow: Shadow, outcome: str) -> None:
        self._tally.shadows[shadow.pool, outcome] += 1


def _headers(lines: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon and name.lower() not in _NOT_SENT:
            yield name.decode("ascii"), value.strip().decode("latin-1")
    yield "x-steplane-shadow", "1"
