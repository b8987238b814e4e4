"""`/api/v1/explain`: what would be decided for a body, and why, with all that this gateway has learned."""

import asyncio
from dataclasses import dataclass

from aiohttp import web

from gateway.control.api.reply import json_reply
from gateway.control.context import AdminContext
from gateway.control.explain import Experience, explain_in_turns


@dataclass(frozen=True, slots=True)
class ExplainApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.post("/api/v1/explain", self.explain)]

    async def explain(self, request: web.Request) -> web.Response:
        """The decision for the body, as if it were sent to `?path=` with `?method=` by `?tenant=`."""
        path = request.query.get("path", "/v1/chat/completions")
        method = request.query.get("method", "POST").upper()
        body = await request.read()
        context = self.context
        experience = Experience(context.config, context.trust, context.book, request.query.get("tenant", ""))
        hookcost = context.config.hookcost
        turns = explain_in_turns(context.router, context.classifier, hookcost, method, path, body, experience)
        while True:
            try:
                next(turns)
            except StopIteration as done:
                return json_reply(done.value)
            # The loop carries requests, too.
            await asyncio.sleep(0)
