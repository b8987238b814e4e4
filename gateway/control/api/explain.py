"""`/api/v1/explain`: what would be decided for a body, and why, with all that this gateway has learned."""

from dataclasses import dataclass

from aiohttp import web

from gateway.control.api.reply import ApiError, json_reply
from gateway.control.context import AdminContext
from gateway.control.explain import Asked, Experience, explain_in_turns, header_in
from gateway.control.inturns import in_turns


@dataclass(frozen=True, slots=True)
class ExplainApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.post("/api/v1/explain", self.explain)]

    async def explain(self, request: web.Request) -> web.Response:
        """The decision for the body, as if it were sent to `?path=` with `?method=` by `?tenant=`.

        `?header=x-tier: gold`, as often as there are headers.
        """
        query, context = request.query, self.context
        tenant = query.get("tenant", "")
        asked = Asked(
            query.get("path", "/v1/chat/completions"),
            await request.read(),
            query.get("method", "POST").upper(),
            tenant,
            tuple([_header(line) for line in query.getall("header", [])]),
            context.config.tenants.pools_of(tenant),
        )
        experience = Experience(context.config, context.trust, context.book)
        turns = explain_in_turns(context.router, context.classifier, context.config.hookcost, asked, experience)
        return json_reply(await in_turns(turns))


def _header(line: str) -> tuple[str, str]:
    header = header_in(line)
    if header is None:
        raise ApiError(400, "invalid_query", f"header: expected `name: value`, found {line[:40]!r}")
    return header
