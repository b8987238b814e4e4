"""The OpenAPI document tells the truth: every route is in it, and what is answered looks as it says."""

import re
from typing import Any

import jsonschema
import pytest
from aiohttp import web

from gateway.control.admin import create_admin_app
from gateway.control.api.openapi import openapi
from gateway.control.api.operations import OPERATIONS, index
from tests.unit.control.admins import BOMB, Admin, running_admin

_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")

BY = {"author": "ann", "reason": "a test"}


@pytest.fixture
async def admin():  # type: ignore[no-untyped-def]
    async with running_admin() as admin:
        yield admin


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    """What there is, but for the files of the page."""
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None
        and route.method in _METHODS
        and not route.resource.canonical.startswith("/dashboard")
    }


async def test_every_route_is_in_the_table_and_the_other_way_round(admin: Admin) -> None:
    tabled = {(each.method, each.path) for each in OPERATIONS if not each.workers}

    assert routes_of(create_admin_app(admin.context)) == tabled


async def test_every_operation_has_an_id_of_its_own() -> None:
    document = openapi()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]

    assert len(set(ids)) == len(ids) == len(OPERATIONS)


async def test_all_references_lead_somewhere(admin: Admin) -> None:
    reply = await admin.client.get("/api/v1/openapi.json")
    schemas = reply.json()["components"]["schemas"]

    assert reply.json()["openapi"] == "3.1.0"
    for name in re.findall(r'"#/components/schemas/(\w+)"', reply.text):
        assert name in schemas
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None),
        ("GET", "/healthz", None),
        ("GET", "/readyz", None),
        ("GET", "/api/v1/pools", None),
        ("GET", "/api/v1/replicas", None),
        ("GET", "/api/v1/quarantine", None),
        ("GET", "/api/v1/quarantine/{key}", None),
        ("POST", "/api/v1/quarantine/{key}/release", BY),
        ("POST", "/api/v1/quarantine", {"signature": "s1-00000000000000aa", **BY}),
        ("POST", "/api/v1/quarantine", {"author": "ann"}),
        ("GET", "/api/v1/quarantine/{key}/steps", None),
        ("GET", "/api/v1/audit", None),
        ("GET", "/api/v1/costs", None),
        ("GET", "/api/v1/costs/{signature}", None),
        ("GET", "/api/v1/state", None),
        ("GET", "/api/v1/tenants", None),
        ("POST", "/api/v1/tenants/{tenant}/keys", BY),
        ("GET", "/api/v1/config?full=true", None),
        ("POST", "/api/v1/reload", None),
        ("GET", "/api/v1/overview", None),
        ("GET", "/api/v1/whoami", None),
        ("POST", "/api/v1/replicas/{replica}/drain", BY),
        ("POST", "/api/v1/replicas/{replica}/undrain", None),
        ("POST", "/api/v1/pools/{pool}/replicas/{replica}/drain", None),
        ("POST", "/api/v1/drain", None),
        ("POST", "/api/v1/explain", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_answers_look_as_the_document_says(admin: Admin, method: str, path: str, body: Any) -> None:
    admin.trip()
    admin.run()
    real = path.format(key=BOMB, signature=BOMB, replica="i1", pool="interactive", tenant="acme")

    reply = await admin.client.request(method, real, json=body)

    document = openapi()
    operation = document["paths"][path.partition("?")[0]][method.lower()]
    schema = operation["responses"][str(reply.status_code)]["content"]["application/json"]["schema"]
    jsonschema.validate(reply.json(), schema | {"components": document["components"]})


async def test_bodies_of_the_document_are_those_that_are_taken(admin: Admin) -> None:
    document = openapi()
    schema = {"$ref": "#/components/schemas/AddBody", "components": document["components"]}

    jsonschema.validate({"tenant": "acme", "pin": True, **BY}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tenant": "acme"}, schema)


def test_the_index_shows_queries_and_what_only_a_supervisor_has_apart() -> None:
    assert "GET /api/v1/costs?top=20" in index()
    assert set(index(workers=True)) == {"GET /api/v1/workers", "POST /api/v1/restart"}
    assert index() == index(workers=False) | index(workers=True)
