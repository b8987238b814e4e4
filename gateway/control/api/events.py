"""`/api/v1/overview` and `/api/v1/events`: all that the dashboard shows, once, and live.

Owns the once-a-second work of the history, which goes on while nobody watches.
"""

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import structlog
from aiohttp import web

from gateway.control.api.reply import event_stream, large_json_reply
from gateway.control.context import AdminContext
from gateway.control.dashboard.broadcast import Broadcast
from gateway.control.dashboard.history import COLUMNS, REPLICA_COLUMNS, Point
from gateway.control.dashboard.overview import Overview
from gateway.control.dashboard.portraits import Prices
from gateway.control.dashboard.totals import pool_totals

log = structlog.get_logger("steplane.dashboard")

_EVERY_S = 1.0
_LOOK_EVERY = 5
"""Of these, one at which it is seen what is wrong though nobody watches."""


class EventsApi:
    """Reads."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._overview = Overview(context)
        context.memory.portraits.prices = self._prices
        self._broadcast = Broadcast(
            self._overview.compose,
            with_snapshot=self._whole_history,
            with_change=self._news,
            wall=context.wall,
        )

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/overview", self.overview), web.get("/api/v1/events", self.events)]

    async def running(self, _: web.Application) -> AsyncIterator[None]:
        """While the admin port is open; for aiohttp's `cleanup_ctx`."""
        noting = asyncio.create_task(self._note(), name="history")
        yield
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)
        await self._broadcast.close()

    async def overview(self, _: web.Request) -> web.Response:
        """The document of the first event."""
        document = await self._overview.compose()
        return await large_json_reply({"now": self._context.wall(), **self._whole_history(), **document})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """`snapshot`, then `change` each second: items by section and key, null for one that is gone."""
        return await event_stream(request, self._broadcast.watch())

    def _prices(self) -> Prices:
        hookcost = self._context.config.hookcost
        return Prices(self._context.classifier.model, hookcost.grammar_backend, hookcost.grammar_backend_version)

    def _whole_history(self) -> dict[str, Any]:
        history = self._context.memory.history
        return {
            "columns": COLUMNS,
            "history": history.document(),
            "replica_columns": REPLICA_COLUMNS,
            "replica_history": history.replicas(),
        }

    def _news(self) -> dict[str, Any]:
        """The newest points; those of two seconds, since the history and the events keep different time."""
        history = self._context.memory.history
        pools = list(self._context.router.pools)
        return {
            "points": {pool: _rows(history.seconds(pool)[-2:]) for pool in pools},
            "minutes": {pool: _rows(history.minutes(pool)[-1:]) for pool in pools},
            "replica_points": history.replicas(2),
        }

    async def _note(self) -> None:
        context = self._context
        for second in count():
            try:
                context.memory.history.note(round(context.wall(), 2), await pool_totals(context))
                if second % _LOOK_EVERY == 0 and not self._broadcast.viewers:
                    await self._overview.look()
            except Exception:
                log.exception("history_failed")
            await asyncio.sleep(_EVERY_S)


def _rows(points: list[Point]) -> list[list[float | None]]:
    return [point.row() for point in points]
