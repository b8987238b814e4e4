"""Error replies in SGLang's shapes: OpenAI endpoints answer a flat `ErrorResponse`, native ones a nested `error`."""

import json
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web
from pydantic import ValidationError

from replica.simulator.finish import Finish


class RequestError(Exception):
    """A reply other than 200. `error_type` and `status` as SGLang names them."""

    def __init__(self, message: str, *, status: int = 400, error_type: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.error_type = error_type

    @classmethod
    def of_validation(cls, error: ValidationError) -> "RequestError":
        return cls(str(error.errors(include_url=False)), error_type=HTTPStatus.BAD_REQUEST.phrase)

    @classmethod
    def of_abort(cls, finish: Finish) -> "RequestError":
        """The reply to a request that does not stream and was aborted with a status."""
        status = finish.status or 500
        error_type = "BadRequestError" if status == 400 else str(status)
        return cls(finish.message or "Aborted", status=status, error_type=error_type)


def json_response(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def openai_error(error: RequestError) -> web.Response:
    return json_response(error_object(error.message, error.error_type, error.status), error.status)


def native_error(error: RequestError) -> web.Response:
    return json_response({"error": {"message": error.message}}, error.status)


def error_object(message: str, error_type: str, code: int) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": error_type, "param": None, "code": code}


def is_error(finish: Finish | None) -> bool:
    """An abort that is an error; an abort that somebody asked for is an ordinary end."""
    return finish is not None and finish.type == "abort" and finish.status is not None


def stream_error(finish: Finish) -> bytes:
    """The SSE event that ends an OpenAI stream when the engine fails at it."""
    status = HTTPStatus(finish.status or 500)
    body = {"error": error_object(finish.message or "Generation aborted.", status.name, status.value)}
    # Python's JSON, with its spaces, as SGLang writes these.
    return f"data: {json.dumps(body)}\n\n".encode()
