"""`/api/v1/openapi.json`: the API as an OpenAPI 3.1 document, made of the table in operations.py."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway import __version__
from gateway.control.api.answers import Error
from gateway.control.api.operations import JSON, OPERATIONS, Operation
from gateway.control.api.reply import json_reply
from gateway.control.context import AdminContext

_IN_PATH = re.compile(r"\{(\w+)\}")
_REF = "#/components/schemas/{model}"
_ERRORS = {
    400: "what was sent can't be used; the message says where and why",
    401: "who asks has to say who he is",
    403: "who asks may not do that",
    404: "there is no such thing",
    409: "that is not possible as things are",
    422: "the configuration has problems; the old one stays in force",
    500: "it went wrong here; the log says more",
    503: "no requests should be sent here now",
}


@dataclass(frozen=True, slots=True)
class OpenApi:
    """Reads."""

    context: AdminContext

    def routes(self) -> list[web.RouteDef]:
        """What it answers."""
        return [web.get("/api/v1/openapi.json", self.show)]

    async def show(self, _: web.Request) -> web.Response:
        """The document."""
        return json_reply(openapi())


@cache
def openapi() -> dict[str, Any]:
    """The document, as plain data; not to be changed."""
    schemas: dict[str, Any] = {}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    _put(Error, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Steplane admin API",
            "version": __version__,
            "description": "What a gateway shows and does for people and their tools. Errors look like OpenAI's.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{}, {"token": []}, {"basic": []}],
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _IN_PATH.findall(operation.path)
    ]
    parameters += [
        {"name": each.name, "in": "query", "description": each.said, "schema": each.schema}
        for each in operation.parameters
    ]
    failures = sorted({401, 403, *operation.errors})
    made: dict[str, Any] = {
        "summary": operation.said,
        "operationId": _id(operation),
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": {
            str(operation.status): {"description": operation.said, "content": _content(operation.answer, schemas)},
            **{str(status): _failure(operation, status) for status in failures},
        },
    }
    if operation.workers:
        made["description"] = "Only where several workers serve."
    if operation.body is not None:
        schema = _schema(operation.body, schemas)
        made["requestBody"] = {"required": not operation.optional, "content": {JSON: {"schema": schema}}}
    return made


def _failure(operation: Operation, status: int) -> dict[str, Any]:
    model = operation.answer if status == 503 and not isinstance(operation.answer, str) else Error
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"description": _ERRORS[status], "content": {JSON: {"schema": schema}}}


def _content(answer: type[BaseModel] | str, schemas: dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, str):
        return {answer: {"schema": {"type": "object" if answer == JSON else "string"}}}
    return {JSON: {"schema": _schema(answer, schemas)}}


def _schema(model: type[BaseModel] | type[dict[str, Any]], schemas: dict[str, Any]) -> dict[str, Any]:
    if issubclass(model, dict):
        return {"type": "object"}
    _put(model, schemas)
    return {"$ref": _REF.format(model=model.__name__)}


def _put(model: type[BaseModel], schemas: dict[str, Any]) -> None:
    made = model.model_json_schema(ref_template=_REF, schema_generator=_Generator)
    schemas.update(made.pop("$defs", {}))
    schemas[model.__name__] = made


def _id(operation: Operation) -> str:
    words = re.findall(r"[a-z]+", operation.path.removeprefix("/api/v1").replace(".json", ""))
    return "_".join((operation.method.lower(), *words)) if words else "index"


class _Generator(GenerateJsonSchema):
    """Pydantic's, but for URLs, which are text that a validator takes apart."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:  # noqa: ARG002
        """An address."""
        return {"type": "string"}
