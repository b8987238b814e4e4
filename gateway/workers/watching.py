"""The live pages of a supervisor's admin port: the events of all workers put together, and all their decisions.

Owns nothing of what is shown. Asks the workers for it once a second while somebody watches, and not at all else.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import Any

import aiohttp
from aiohttp import web

from gateway.control.api.reply import ApiError, event_stream, json_reply
from gateway.control.dashboard.broadcast import Broadcast
from gateway.workers.overviews import merge_histories, merge_overviews, merge_replica_histories

_AHEAD = 100
_OVERVIEW = "/api/v1/overview"

Ask = Callable[[str], Awaitable[Sequence[Any]]]
"""What all workers answer to a GET of a path, those that answer well."""
Open = Callable[[str], Sequence[AbstractAsyncContextManager[aiohttp.ClientResponse]]]
"""The answers of all workers to a GET of a path, still open."""


class Watching:
    """Of one supervisor."""

    def __init__(self, ask: Ask, open_all: Open) -> None:
        self._ask = ask
        self._open_all = open_all
        self._columns: dict[str, list[str]] = {}
        self._history: dict[str, Any] = {}
        self._replicas: dict[str, list[list[float]]] = {}
        self._broadcast = Broadcast(
            self._compose, with_snapshot=self._whole_history, with_change=self._news, wall=time.time
        )

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [
            web.get(_OVERVIEW, self._overview),
            web.get("/api/v1/events", self._events),
            web.get("/api/v1/decisions", self._decisions),
        ]

    async def close(self) -> None:
        """Let go of all who watch."""
        await self._broadcast.close()

    async def _overview(self, _: web.Request) -> web.Response:
        document = await self._compose()
        return json_reply({"now": time.time(), **self._whole_history(), **document})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await event_stream(request, self._broadcast.watch())

    async def _decisions(self, request: web.Request) -> web.StreamResponse:
        return await event_stream(request, self._all_decisions(request.raw_path))

    async def _compose(self) -> Mapping[str, Mapping[str, Any]]:
        documents = await self._ask(_OVERVIEW)
        if not documents:
            raise ApiError(503, "no_worker", "no worker is ready to answer; GET /api/v1/workers says who there is")
        self._columns = {name: documents[0][name] for name in ("columns", "replica_columns")}
        self._history, self._replicas = merge_histories(documents), merge_replica_histories(documents)
        return merge_overviews(documents)

    def _whole_history(self) -> dict[str, Any]:
        return {**self._columns, "history": self._history, "replica_history": self._replicas}

    def _news(self) -> dict[str, Any]:
        return {
            "points": {pool: each["seconds"][-2:] for pool, each in self._history.items()},
            "minutes": {pool: each["minutes"][-1:] for pool, each in self._history.items()},
            "replica_points": {name: rows[-2:] for name, rows in self._replicas.items()},
        }

    async def _all_decisions(self, path: str) -> AsyncGenerator[bytes, None]:
        """The events of all workers that there are now, as they come; the stream ends with the first worker's.

        Who watches begins again then, with the workers that there are.
        """
        events: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)
        tasks = [asyncio.create_task(_pass_on(answer, events)) for answer in self._open_all(path)]
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    answer: AbstractAsyncContextManager[aiohttp.ClientResponse], events: asyncio.Queue[bytes | None]
) -> None:
    with suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with answer as response, aclosing(_whole_events(response)) as found:
            async for event in found:
                await events.put(event)
    await events.put(None)


async def _whole_events(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for data in response.content.iter_any():
        *whole, rest = (rest + data).split(b"\n\n")
        for event in whole:
            yield event + b"\n\n"
