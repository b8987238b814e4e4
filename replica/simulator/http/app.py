"""The aiohttp application: routes to handlers, request errors to SGLang's shapes."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from replica.simulator.frontend import FrontEnd
from replica.simulator.http.admin import Admin
from replica.simulator.http.chat import chat_completions
from replica.simulator.http.completions import completions
from replica.simulator.http.errors import RequestError, json_response, native_error, openai_error
from replica.simulator.http.generate import generate

MAX_BODY_BYTES = 256 * 1024 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Endpoint = Callable[[web.Request, FrontEnd], Awaitable[web.StreamResponse]]


def create_app(frontend: FrontEnd, admin: Admin) -> web.Application:
    """All endpoints of one replica."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_errors])
    app.router.add_routes(admin.routes())
    for path, endpoint in (("/v1/chat/completions", chat_completions), ("/v1/completions", completions)):
        app.router.add_post(path, _bound(endpoint, frontend))
    for method in ("POST", "PUT"):
        app.router.add_route(method, "/generate", _bound(generate, frontend))
    return app


def _bound(endpoint: Endpoint, frontend: FrontEnd) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await endpoint(request, frontend)

    return handle


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestError as error:
        return openai_error(error) if request.path.startswith("/v1/") else native_error(error)
    except web.HTTPException as error:
        # FastAPI's shape for what no route answers.
        return json_response({"detail": error.reason}, error.status)
