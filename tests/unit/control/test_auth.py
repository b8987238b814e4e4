"""Who may do what at the admin port."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web

from gateway.control.adminconfig import AdminAuthConfig, AdminConfig, CredentialConfig
from gateway.control.api.whoami import whoami
from gateway.control.auth import guard
from gateway.control.config import parse_config
from gateway.control.network import Address
from gateway.tenants.keys import digest

LOOKING, ACTING, PASSWORD = "sk-look", "sk-act", "sk-pass:word"
LOGINS = AdminAuthConfig(
    tokens=[
        CredentialConfig(name="eye", digest=digest(LOOKING.encode())),
        CredentialConfig(name="hand", digest=digest(ACTING.encode()), role="operate"),
    ],
    basic=[CredentialConfig(name="ann", digest=digest(PASSWORD.encode()), role="operate")],
)
ANYWHERE = Address("0.0.0.0", 8081)
SMALLEST = "default_pool: p\npools: {p: {replicas: ['http://127.0.0.1:1']}}\n"


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@asynccontextmanager
async def port(admin: AdminConfig, *routes: web.RouteDef) -> AsyncIterator[httpx.AsyncClient]:
    """An admin port that has these routes, and says yes to whatever else the guard lets through."""

    async def yes(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(middlewares=[guard(lambda: admin)])
    app.add_routes([*routes, web.route("*", "/{path:.*}", yes)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with httpx.AsyncClient(base_url=url) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("method", "path", "authorization", "status"),
    [
        ("GET", "/healthz", "", 200),
        ("GET", "/readyz", "", 200),
        ("GET", "/metrics", "", 200),
        ("GET", "/", "", 200),
        ("GET", "/dashboard/app.js", "", 200),
        ("GET", "/api/v1/pools", "", 401),
        ("GET", "/dashboards", "", 401),
        ("GET", "/api/v1/pools", f"Bearer {LOOKING}", 200),
        ("GET", "/api/v1/pools", f"bearer {LOOKING}", 200),
        ("GET", "/api/v1/pools", f"Bearer {LOOKING}x", 401),
        ("GET", "/api/v1/pools", f"Bearer {PASSWORD}", 401),
        ("GET", "/api/v1/pools", LOOKING, 401),
        ("GET", "/api/v1/pools", basic("ann", PASSWORD), 200),
        ("GET", "/api/v1/pools", basic("bob", PASSWORD), 401),
        ("GET", "/api/v1/pools", basic("eye", LOOKING), 401),
        ("GET", "/api/v1/pools", "Basic !", 401),
        ("GET", "/api/v1/pools", "Basic /w==", 401),
        ("POST", "/api/v1/explain", f"Bearer {LOOKING}", 200),
        ("POST", "/api/v1/quarantine", f"Bearer {LOOKING}", 403),
        ("DELETE", "/api/v1/pools/p/replicas/r", f"Bearer {LOOKING}", 403),
        ("POST", "/api/v1/quarantine", f"Bearer {ACTING}", 200),
        ("POST", "/api/v1/quarantine", basic("ann", PASSWORD), 200),
        ("POST", "/api/v1/quarantine", "", 401),
        ("POST", "/healthz", "", 200),
    ],
)
@pytest.mark.parametrize("listen", [ANYWHERE, Address("127.0.0.1", 8081)])
async def test_logins_and_roles(method: str, path: str, authorization: str, status: int, listen: Address) -> None:
    headers = {"authorization": authorization} if authorization else {}
    async with port(AdminConfig(listen=listen, auth=LOGINS)) as client:
        assert (await client.request(method, path, headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("authorization", "name", "role"),
    [(f"Bearer {LOOKING}", "eye", "read"), (f"Bearer {ACTING}", "hand", "operate")],
)
async def test_who_is_let_in_is_told_what_he_may_do(authorization: str, name: str, role: str) -> None:
    async with port(AdminConfig(listen=ANYWHERE, auth=LOGINS), web.get("/api/v1/whoami", whoami)) as client:
        answer = await client.get("/api/v1/whoami", headers={"authorization": authorization})

    assert answer.json() == {"name": name, "role": role}


async def test_where_nobody_need_say_who_he_is_everybody_may_do_everything() -> None:
    async with port(AdminConfig(), web.get("/api/v1/whoami", whoami)) as client:
        assert (await client.get("/api/v1/whoami")).json() == {"name": "", "role": "operate"}


async def test_metrics_may_be_for_readers_alone() -> None:
    async with port(AdminConfig(listen=ANYWHERE, auth=LOGINS.model_copy(update={"metrics": "read"}))) as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"authorization": f"Bearer {LOOKING}"})).status_code == 200


async def test_without_logins_a_port_that_others_can_reach_tells_no_more_than_how_it_is() -> None:
    async with port(AdminConfig(listen=ANYWHERE)) as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200
        refused = await client.get("/api/v1/pools")

    assert refused.status_code == 403
    assert "steplane key new" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", 200),
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("[::1]:8081", 200),
        ("bastion.internal:8081", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[", 403),
    ],
)
async def test_without_a_login_it_answers_to_the_names_of_this_machine_alone(host: str, status: int) -> None:
    async with port(AdminConfig(hosts=["bastion.internal"])) as client:
        assert (await client.get("/api/v1/pools", headers={"host": host})).status_code == status


@pytest.mark.parametrize(
    ("method", "origin", "status"),
    [
        ("POST", None, 200),
        ("POST", "http://localhost:8081", 200),
        ("POST", "https://localhost:8081", 200),
        ("POST", "http://localhost:3000", 403),
        ("POST", "http://evil.example", 403),
        ("POST", "null", 403),
        ("GET", "http://evil.example", 200),
    ],
)
async def test_pages_from_elsewhere_may_change_nothing(method: str, origin: str | None, status: int) -> None:
    headers = {"host": "localhost:8081"} | ({"origin": origin} if origin else {})
    async with port(AdminConfig()) as client:
        assert (await client.request(method, "/api/v1/drain", headers=headers)).status_code == status


async def test_a_browser_is_asked_for_user_and_password_but_not_behind_the_back_of_our_own_page() -> None:
    async with port(AdminConfig(listen=ANYWHERE, auth=LOGINS)) as client:
        typed = await client.get("/api/v1/pools")
        fetched = await client.get("/api/v1/pools", headers={"sec-fetch-dest": "empty"})

    assert [each.partition(" ")[0] for each in typed.headers.get_list("www-authenticate")] == ["Bearer", "Basic"]
    assert [each.partition(" ")[0] for each in fetched.headers.get_list("www-authenticate")] == ["Bearer"]


def test_the_configuration_says_what_is_needed() -> None:
    config = parse_config("admin:\n  listen: 0.0.0.0:8081\n" + SMALLEST, "g.yaml")

    assert [str(each) for each in config.warnings] == [
        "g.yaml:2:11: admin.listen: expected somebody who may use it (auth: {tokens: […]}), since others than this "
        "machine can reach it, found 0.0.0.0:8081 (until then only /healthz, /readyz and /metrics answer; "
        "`steplane key new` makes a token)"
    ]
    assert not parse_config("admin: {listen: 'localhost:8081'}\n" + SMALLEST).warnings
