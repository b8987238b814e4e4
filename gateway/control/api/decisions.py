"""`/api/v1/decisions`: a live tail of what was decided and what came of it; features and cost, never a prompt."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import orjson
from aiohttp import web

from gateway.control.api.reply import ApiError, event_stream
from gateway.control.context import AdminContext
from gateway.control.decisions import Wanted


@dataclass(frozen=True, slots=True)
class DecisionsApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/decisions", self.tail)]

    async def tail(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events named `decisions`: `{decisions: […], left_out}`; a second without one has an empty list.

        `?pool=`, `?rule=`, `?tenant=` and `?min_us=` (of step cost) choose.
        """
        query = request.query
        wanted = Wanted(
            query.get("pool", ""), query.get("rule", ""), query.get("tenant", ""), _cost(query.get("min_us"))
        )
        return await event_stream(request, self._events(wanted))

    async def _events(self, wanted: Wanted) -> AsyncGenerator[bytes, None]:
        async with aclosing(self.context.memory.decisions.watch(wanted)) as found:
            async for decisions, left_out in found:
                body = orjson.dumps({"decisions": decisions, "left_out": left_out})
                yield b"event: decisions\ndata: %b\n\n" % body


def _cost(text: str | None) -> float:
    if text is None or text == "":
        return 0.0
    try:
        return float(text)
    except ValueError:
        raise ApiError(400, "invalid_query", f"min_us: expected microseconds, found {text[:40]!r}") from None
