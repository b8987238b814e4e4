"""Server-sent events for everybody who watches: a snapshot first, then once a second what has changed.

A document is composed and encoded once a second for all, and not at all while nobody watches. Whoever is too slow for
that gets a new snapshot instead of what was missed. Knows nothing of what the documents say.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import orjson
import structlog

from gateway.control.inturns import Pace, giving_way

log = structlog.get_logger("steplane.dashboard")

_EVERY_S = 1.0
_AHEAD = 4
"""Changes that are kept for a slow one."""

Document = Mapping[str, Mapping[str, Any]]


class Broadcast:
    """One stream of documents. Belongs to one event loop.

    compose: the document as of now: items by section and key.
    more:    what goes with a snapshot, and what with a change; neither is compared.
    """

    def __init__(
        self,
        compose: Callable[[], Awaitable[Document]],
        *,
        with_snapshot: Callable[[], Mapping[str, Any]],
        with_change: Callable[[], Mapping[str, Any]],
        wall: Callable[[], float],
    ) -> None:
        self._compose = compose
        self._with_snapshot = with_snapshot
        self._with_change = with_change
        self._wall = wall
        self._encoded: dict[str, dict[str, bytes]] = {}
        self._viewers: set[_Viewer] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._number = 0

    @property
    def viewers(self) -> int:
        """How many watch."""
        return len(self._viewers)

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """The events for one more who watches."""
        viewer = _Viewer()
        if self._ticking is None:
            await self._compare()
            if self._ticking is None:
                self._ticking = asyncio.create_task(self._tick(), name="dashboard")
        self._viewers.add(viewer)
        try:
            yield self._snapshot()
            while True:
                change = await viewer.next()
                if change is None:
                    viewer.begin_again()
                    yield self._snapshot()
                else:
                    yield change
        finally:
            self._viewers.discard(viewer)

    async def close(self) -> None:
        """Compose no more; those who watch are let go."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
            self._ticking = None

    async def _tick(self) -> None:
        while self._viewers or not self._encoded:
            await asyncio.sleep(_EVERY_S)
            try:
                changed = await self._compare()
            except Exception:
                log.exception("overview_failed")
                continue
            event = self._event("change", changed, self._with_change())
            for viewer in self._viewers:
                viewer.put(event)
        self._encoded = {}
        self._ticking = None

    async def _compare(self) -> dict[str, dict[str, bytes]]:
        """Compose, and find the items that are new, changed or gone."""
        document = await self._compose()
        changed: dict[str, dict[str, bytes]] = {}
        pace = Pace()
        for section, items in document.items():
            known = self._encoded.setdefault(section, {})
            now: dict[str, bytes] = {}
            found: dict[str, bytes] = {}
            async for key, item in giving_way(items.items(), pace):
                now[key] = encoded = orjson.dumps(item)
                if known.get(key) != encoded:
                    found[key] = encoded
            found |= dict.fromkeys([key for key in known if key not in now], b"null")
            if found:
                changed[section] = found
            self._encoded[section] = now
        return changed

    def _snapshot(self) -> bytes:
        return self._event("snapshot", self._encoded, self._with_snapshot())

    def _event(self, kind: str, sections: Mapping[str, Mapping[str, bytes]], more: Mapping[str, Any]) -> bytes:
        self._number += 1
        parts = [b'"%b":%b' % (name.encode(), orjson.dumps(value)) for name, value in more.items()]
        for section, items in sections.items():
            pairs = [b"%b:%b" % (orjson.dumps(key), item) for key, item in items.items()]
            parts.append(b'"%b":{%b}' % (section.encode(), b",".join(pairs)))
        body = b",".join([b'"now":%b' % orjson.dumps(round(self._wall(), 3)), *parts])
        return b"event: %b\nid: %d\ndata: {%b}\n\n" % (kind.encode(), self._number, body)


class _Viewer:
    __slots__ = ("_queue", "_too_slow")

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._too_slow = False

    def put(self, event: bytes) -> None:
        if self._too_slow:
            return
        if self._queue.qsize() >= _AHEAD:
            self._too_slow = True
            self._queue.put_nowait(None)
        else:
            self._queue.put_nowait(event)

    def begin_again(self) -> None:
        """A snapshot follows: what is still queued is older than that."""
        self._queue = asyncio.Queue()
        self._too_slow = False

    async def next(self) -> bytes | None:
        """None: it was too slow."""
        return None if self._too_slow else await self._queue.get()
