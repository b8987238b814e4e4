"""`/api/v1/whoami`: as whom the admin port knows who asks, so that a page need not offer what would be refused."""

from aiohttp import web

from gateway.control.api.reply import json_reply
from gateway.control.auth import ANYBODY, VISITOR


async def whoami(request: web.Request) -> web.Response:
    """`name` as the configuration has it, "" where nobody need say who he is; `role` is `read` or `operate`."""
    visitor = request.get(VISITOR, ANYBODY)
    return json_reply({"name": visitor.name, "role": "operate" if visitor.may_operate else "read"})
