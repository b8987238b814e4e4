"""Server-sent events: the stream's headers, and writing to it."""

from aiohttp import web

DONE = b"data: [DONE]\n\n"


async def open_stream(request: web.Request) -> web.StreamResponse:
    """Answer 200 and start a stream of events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


def event(body: bytes) -> bytes:
    return b"data: " + body + b"\n\n"
