"""A whole gateway before replicas behind a Unix socket, under TLS of their own, and at a name: requests and all else.

Health checks and aborts must go the way that requests go, or such a replica would never be up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Gateway
from gateway.control.config import load_config
from tests.integration.wire.certificates import make_authority
from tests.integration.wire.harness import OK, PATIENCE_S, Client, Message, Served, read_message, until

from .harness import has_ipv6, placed

ABORTED = b"/abort_request"


class Engine:
    """Answers health checks, notes aborts, and gives everybody else OK, or nothing while `held`."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.aborted: list[str] = []
        self.held = False

    async def __call__(self, served: Served) -> None:
        while True:
            message = await read_message(served.reader)
            target = message.start.split(b" ")[1]
            if target == ABORTED:
                self.aborted.append(json.loads(message.body)["rid"])
            elif target not in (b"/health", b"/metrics", b"/v1/models", b"/get_server_info", b"/server_info"):
                self.asked.append(message)
                if self.held:
                    await served.closed()
                    return
            await served.send(OK)


@contextlib.asynccontextmanager
async def gateway_before(folder: Path, replica: dict[str, Any], upstream: dict[str, Any]) -> AsyncIterator[Gateway]:
    document = {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "default_pool": "interactive",
        "pools": {"interactive": {"replicas": [replica], "feed": "off", "upstream": upstream}},
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(document))
    gateway = Gateway(load_config(file))
    await gateway.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await gateway.wait_all_up()
        yield gateway
    finally:
        await gateway.close()
        await until(lambda: len(asyncio.all_tasks()) <= 2)


async def ask(gateway: Gateway) -> Client:
    reader, writer = await asyncio.open_connection(*gateway.data_address)
    client = Client(reader, writer)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    return client


async def admin(gateway: Gateway, path: str, method: str = "GET") -> str:
    host, port = gateway.admin_address[:2]
    url = f"http://{host}:{port}{path}"
    async with aiohttp.ClientSession() as session, session.request(method, url) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


async def is_served(gateway: Gateway, engine: Engine) -> None:
    """Requests reach it, and so does an abort for a request whose client has left."""
    client = await ask(gateway)
    assert (await client.response()).body == b"ok"
    client.close()
    engine.held = True
    client = await ask(gateway)
    await until(lambda: len(engine.asked) == 2)
    client.close()
    await until(lambda: len(engine.aborted) == 1)


async def test_a_replica_behind_a_unix_socket_is_checked_asked_and_told_to_abort(tmp_path: Path) -> None:
    engine, path = Engine(), str(tmp_path / "e.sock")
    replica = {"url": f"unix:{path}", "name": "engine-1"}
    async with placed(engine, path=path), gateway_before(tmp_path, replica, {}) as gateway:
        await is_served(gateway, engine)
        shown = json.loads(await admin(gateway, "/api/v1/replicas"))["replicas"][0]
        assert (shown["name"], shown["url"]) == ("engine-1", f"unix:{path}")


async def test_a_replica_under_an_authority_of_its_pools_own_is_checked_asked_and_told_to_abort(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.sign("gateway")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*map(str, authority.sign("engine")))
    context.load_verify_locations(str(authority.file))
    context.verify_mode = ssl.CERT_REQUIRED
    engine = Engine()
    tls = {"ca": authority.file.name, "client_certificate": certificate.name, "client_key": key.name}
    async with placed(engine, ssl=context) as server:
        replica = {"url": f"https://127.0.0.1:{server.port}", "name": "engine-1"}
        async with gateway_before(tmp_path, replica, {"tls": tls}) as gateway:
            await is_served(gateway, engine)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_a_replica_with_an_ipv6_address_is_checked_asked_and_told_to_abort(tmp_path: Path) -> None:
    engine = Engine()
    async with placed(engine, host="::1") as server:
        replica = {"url": f"http://[::1]:{server.port}"}
        async with gateway_before(tmp_path, replica, {}) as gateway:
            await is_served(gateway, engine)
            shown = json.loads(await admin(gateway, "/api/v1/replicas"))["replicas"][0]
            assert shown["name"] == f"[::1]:{server.port}"


async def test_a_reload_changes_how_a_pool_connects(tmp_path: Path) -> None:
    engine = Engine()
    async with placed(engine) as server:
        replica = {"url": f"http://127.0.0.1:{server.port}", "name": "engine-1"}
        async with gateway_before(tmp_path, replica, {"idle_s": 50}) as gateway:
            file = tmp_path / "gateway.yaml"
            written = file.read_text()
            for upstream, limit_s in (('"idle_s": 40', 40.0), ('"idle_s": 40, "min_idle": 1', 40.0)):
                file.write_text(written.replace('"idle_s": 50', upstream))
                await admin(gateway, "/api/v1/reload", "POST")
                shown = json.loads(await admin(gateway, "/api/v1/replicas"))["replicas"][0]["connections"]
                assert shown["idle_limit_s"] == limit_s
                client = await ask(gateway)
                assert (await client.response()).body == b"ok"
                client.close()


async def test_what_connections_do_is_shown_to_people_and_prometheus(tmp_path: Path) -> None:
    engine = Engine()
    async with placed(engine) as server:
        replica = {"url": f"http://localhost:{server.port}", "name": "engine-1"}
        async with gateway_before(tmp_path, replica, {"max_connections": 5}) as gateway:
            for _ in range(3):
                client = await ask(gateway)
                await client.response()
                client.close()
            shown = json.loads(await admin(gateway, "/api/v1/replicas"))["replicas"][0]["connections"]
            assert shown["open"] == shown["idle"] == shown["connects"] == 1
            assert shown["reused"] == 2
            assert shown["waiting"] == 0
            assert set(shown["failures"].values()) == {0}
            assert f"127.0.0.1:{server.port}" in shown["addresses"]
            samples = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(await admin(gateway, "/metrics"))
                for sample in family.samples
                if sample.labels.get("replica") == "engine-1"
            }
            place = ("interactive", "engine-1")
            assert samples["steplane_upstream_connects_total", *place] == 1
            assert samples["steplane_upstream_reused_total", *place] == 2
            assert samples["steplane_upstream_connections", *place, "idle"] == 1
            assert samples["steplane_upstream_waiting_requests", *place] == 0
            assert samples["steplane_upstream_dns_lookups_total", *place] == 1
