"""Server-sent events: the stream's headers, and writing a reply to it."""

from collections.abc import Callable

from aiohttp import web

from replica.simulator.frontend import Delta, Reply
from replica.simulator.http.errors import is_error, stream_error

DONE = b"data: [DONE]\n\n"


async def send_stream(
    request: web.Request,
    reply: Reply,
    of_delta: Callable[[Delta], bytes],
    end: Callable[[], bytes] = bytes,
    *,
    error_events: bool = True,
) -> web.StreamResponse:
    """One event a token; the head of a stream waits for the first of them, as in SGLang.

    `of_delta` and `end` give the events of a token and those after the last. With `error_events` a failure is an event
    of its own and ends the stream; without, it is a token's like any other.
    """
    response: web.StreamResponse | None = None
    error = b""
    async for delta in reply.deltas():
        if response is None:
            response = await _open(request)
        if error_events and delta.finish is not None and is_error(delta.finish):
            error = stream_error(delta.finish)
            break
        await response.write(of_delta(delta))
    if response is None:
        response = await _open(request)
    await response.write(error + end() + DONE)
    await response.write_eof()
    return response


def event(body: bytes) -> bytes:
    """One event."""
    return b"data: " + body + b"\n\n"


async def _open(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response
