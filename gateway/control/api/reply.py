"""How the admin port answers: JSON, and errors in the shape of OpenAI's: `{"error": {"message", "type", "code"}}`.

Owns also how it reads: JSON bodies against a model, and numbers from the query.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import TypeVar

import orjson
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import ValidationError

from gateway.control.document import Document
from gateway.control.inturns import Pace, giving_way
from gateway.control.part import Part
from gateway.control.validation import to_problem

_log = structlog.get_logger("steplane.admin")

Model = TypeVar("Model", bound=Part)

STREAMS: web.AppKey[set[asyncio.Task[None]]] = web.AppKey("streams", set)
"""Of those who watch now; an application with `event_stream` has it."""


class ApiError(Exception):
    """Ends a request: `status`, a `code` for programs, and a message that says what was wrong and what to do."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def json_reply(value: object, status: int = 200) -> web.Response:
    """`value` as JSON, with a line end for people with curl."""
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/json")


async def large_json_reply(value: Mapping[str, object]) -> web.Response:
    """The same for what holds many items in its lists and objects: these are encoded in turns."""
    pace = Pace()
    encoded: dict[str, object] = dict(value)
    for name, part in value.items():
        if isinstance(part, dict):
            encoded[name] = {key: _encoded(item) async for key, item in giving_way(part.items(), pace)}
        elif isinstance(part, list):
            encoded[name] = [_encoded(item) async for item in giving_way(part, pace)]
    return json_reply(encoded)


def _encoded(item: object) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(item))


async def event_stream(request: web.Request, events: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    """Server-sent events until the client leaves or the admin port ends; `events` come ready to be sent.

    What keeps the first one from coming is an answer of its own.
    """
    try:
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    response = web.StreamResponse(
        headers={"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}
    )
    await response.prepare(request)
    sending = asyncio.create_task(_send(response, first, events))
    streams = request.app[STREAMS]
    streams.add(sending)
    try:
        await sending
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    finally:
        sending.cancel()
        streams.discard(sending)
    return response


async def _send(response: web.StreamResponse, first: bytes, events: AsyncGenerator[bytes, None]) -> None:
    with suppress(ConnectionError):
        async with aclosing(events):
            await response.write(first)
            async for event in events:
                await response.write(event)


async def end_streams(app: web.Application) -> None:
    """Let go of everybody who watches: the admin port ends. For aiohttp's `on_shutdown`."""
    streams = app[STREAMS]
    for stream in tuple(streams):
        stream.cancel()


def instant(at: float | None) -> str | None:
    """A time of day as ISO 8601, UTC, with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rounded(figures: Mapping[str, object]) -> dict[str, object]:
    """For people: three digits after the point are enough."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}


async def body_of(request: web.Request, model: type[Model]) -> Model:
    """The request's JSON body as a `model`. Raises ApiError.

    It must be sent as JSON: a browser asks us before a page of somebody else's may do that, and we don't answer.
    """
    if request.content_type != "application/json":
        message = f"{request.path} takes JSON: send `content-type: application/json`, not {request.content_type}"
        raise ApiError(415, "unsupported_media_type", message)
    try:
        data = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise ApiError(400, "invalid_json", f"the body is no JSON: {error}") from None
    try:
        return model.model_validate(data)
    except ValidationError as error:
        document = Document("", data, {}, {})
        found = [to_problem(model, document, each).said for each in error.errors(include_url=False)]
        raise ApiError(400, "invalid_body", "; ".join(found)) from None


def count_of(request: web.Request, name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most` in the query. Raises ApiError."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= most):
        raise ApiError(400, "invalid_query", f"{name}: expected a whole number from 1 to {most}, found {text[:40]!r}")
    return int(text)


def flag_of(request: web.Request, name: str) -> bool:
    """`true` or `false` in the query, false where it is not there. Raises ApiError."""
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise ApiError(400, "invalid_query", f"{name}: expected true or false, found {text[:40]!r}")
    return text == "true"


def error_response(error: ApiError) -> web.Response:
    """The answer that an error is."""
    return _error(error.status, error.code, str(error))


def openai_errors(endpoints: Callable[[], str]) -> Middleware:
    """Turns whatever ends a request into an answer. `endpoints` says what there is, for who asks for something else."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return error_response(error)
        except web.HTTPNotFound:
            return _error(404, "not_found", f"the admin port has no {request.path}; it has {endpoints()}")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            response = _error(405, "method_not_allowed", f"{request.path} takes {allowed}, not {request.method}")
            response.headers["allow"] = allowed
            return response
        except web.HTTPRequestEntityTooLarge as error:
            return _error(413, "body_too_large", error.text or "the body is too large")
        except web.HTTPException as error:
            return _error(error.status, "http_error", error.reason)
        except Exception:
            _log.exception("admin request failed", path=request.path)
            return _error(500, "internal_error", "the admin port failed at this; its log says why")

    return answer


def _error(status: int, code: str, message: str) -> web.Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return json_reply({"error": {"message": message, "type": kind, "code": code}}, status=status)
