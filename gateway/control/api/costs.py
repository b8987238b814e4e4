"""`/api/v1/costs`: the cost book, what was observed of each cost signature beside what is predicted."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.breaker.record import Kind, State
from gateway.control.api.reply import ApiError, count_of, instant, json_reply
from gateway.control.context import AdminContext
from gateway.control.inturns import in_turns
from gateway.hookcost.costbook import CostEntry

_TOP = 20
_MOST = 1000


@dataclass(frozen=True, slots=True)
class CostsApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/costs", self.top), web.get("/api/v1/costs/{signature}", self.show)]

    async def top(self, request: web.Request) -> web.Response:
        """The dearest by mean step."""
        count = count_of(request, "top", _TOP, _MOST)
        found = await in_turns(self.context.book.top_in_turns(count))
        costs = [cost_document(self.context, entry) for entry in found]
        return json_reply({"costs": costs, "signatures": len(self.context.book)})

    async def show(self, request: web.Request) -> web.Response:
        """One signature."""
        signature = request.match_info["signature"]
        entry = self.context.book.entry(signature)
        if entry is None:
            message = f"nothing was observed of {signature!r}: its requests cost nothing, or none has run"
            raise ApiError(404, "not_observed", message)
        return json_reply(cost_document(self.context, entry))


def cost_document(context: AdminContext, entry: CostEntry) -> dict[str, Any]:
    """One entry of the cost book, what was predicted for the signature's newest request, and how its breaker stands."""
    document = entry.document()
    age_s = max(0.0, context.clock() - document.pop("last_seen_s"))
    predicted = entry.predicted
    record = context.trust.record(Kind.signature, entry.signature)
    return document | {
        "last_seen": instant(context.wall() - age_s),
        "predicted": predicted and {"step_us": predicted.step_us, "compile_ms": predicted.compile_ms},
        "quarantine": None if record is None or record.state is State.closed else record.state.value,
    }
