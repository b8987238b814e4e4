"""`/api/v1/quarantine/{key}/steps`: when replicas last named a signature, with what stacks their watchdogs caught."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web

from gateway.control.api.reply import instant, json_reply
from gateway.control.context import AdminContext
from gateway.control.dashboard.namings import Naming
from gateway.feed.running import owners


@dataclass(frozen=True, slots=True)
class NamingsApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/quarantine/{key}/steps", self.steps)]

    async def steps(self, request: web.Request) -> web.Response:
        """The last times, newest first; `stack` is null where none was caught."""
        namings = self.context.memory.namings.of(request.match_info["key"])
        replicas = sorted({naming.replica for naming in namings})
        answers = await asyncio.gather(*(self.context.senses.offences(replica) for replica in replicas))
        stacks = {
            (replica, owner): offence["stack"]
            for replica, offences in zip(replicas, answers, strict=True)
            for offence in reversed(offences)
            if isinstance(offence, dict) and isinstance(offence.get("stack"), list)
            for owner in (str(offence.get("rid")), *owners(str(offence.get("rid"))))
        }
        return json_reply({"steps": [_document(naming, stacks) for naming in namings]})


def _document(naming: Naming, stacks: dict[tuple[str, str], Any]) -> dict[str, Any]:
    stack = stacks.get((naming.replica, naming.request_id)) if naming.what == "watchdog" else None
    return asdict(naming) | {"at": instant(naming.at), "stack": stack}
