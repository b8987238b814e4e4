"""`/api/v1/state`: where breakers and costs are kept, and whether other gateways hear of them."""

from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from gateway.control.api.reply import json_reply, rounded
from gateway.control.context import AdminContext


@dataclass(frozen=True, slots=True)
class StateApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/state", self.show)]

    async def show(self, _: web.Request) -> web.Response:
        """The store, and how much is kept in this process."""
        context = self.context
        kept = context.trust.status() | {"costs": len(context.book), "running": len(context.running)}
        return json_reply({"store": store_document(context), "kept": kept})


def store_document(context: AdminContext) -> dict[str, Any]:
    """How the store is; `since_s`: seconds for which it has been connected, or not."""
    status = asdict(context.store.status())
    status["since_s"] = max(0.0, context.clock() - status.pop("since"))
    return rounded(status)
