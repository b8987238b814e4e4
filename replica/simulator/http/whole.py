"""Replies that do not stream: all of one at once, and the object that OpenAI's two completion APIs answer."""

import time
from typing import Any

from aiohttp import web

from replica.simulator.frontend import Choice, Reply
from replica.simulator.http.errors import RequestError, is_error, json_response
from replica.simulator.http.usage import metadata, usage


async def whole(reply: Reply) -> list[Choice]:
    """All choices, complete. Raises RequestError where the engine failed at one."""
    choices = await reply.complete()
    for choice in choices:
        if choice.finish is not None and is_error(choice.finish):
            raise RequestError.of_abort(choice.finish)
    return choices


def completion(kind: str, model: str, choices: list[Choice], objects: list[dict[str, Any]], n: int) -> web.Response:
    """`kind`: the name that the API gives its object. objects: the choices as it spells them. n: samples a prompt."""
    return json_response(
        {
            "id": choices[0].rid,
            "object": kind,
            "created": int(time.time()),
            "model": model,
            "choices": objects,
            "usage": usage(choices, n),
            "metadata": metadata(choices[0]),
        }
    )
