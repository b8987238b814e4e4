"""`/api/v1/drain`: the end in good order, for who can send no signal (a preStop hook, a script on another machine)."""

from dataclasses import dataclass

from aiohttp import web

from gateway.control.api.reply import json_reply
from gateway.control.context import AdminContext


@dataclass(frozen=True, slots=True)
class DrainApi:
    """Ends the gateway."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.post("/api/v1/drain", self.drain)]

    async def drain(self, _: web.Request) -> web.Response:
        """As SIGTERM: answers at once, `/readyz` says how far it is."""
        self.context.end()
        return json_reply({"draining": True}, status=202)
