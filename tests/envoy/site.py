"""A whole site: clients, a real Envoy, the endpoint picker in the test's own loop, and scripted engines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from gateway.epp.service import EndpointPicker
from tests.integration.gateway.harness import House, house
from tests.integration.wire.harness import PATIENCE_S
from tests.unit.docs.pages import blocks

MODES: dict[str, dict[str, str]] = {
    "as documented": {},
    "buffered": {
        "request_header_mode": "SEND",
        "response_header_mode": "SEND",
        "request_body_mode": "BUFFERED",
        "response_body_mode": "STREAMED",
    },
}
SILENT = {**MODES["buffered"], "response_body_mode": "NONE"}
"""Envoy tells of no bodies of responses."""


def envoy_config(port: int, admin: int, picker: int, mode: dict[str, str]) -> dict[str, Any]:
    """The configuration of docs/envoy.md with other ports and, if there is one, another mode."""
    (block,) = [each for each in blocks() if each.page.name == "envoy.md" and each.title == "envoy.yaml"]
    document: dict[str, Any] = yaml.safe_load(block.code)
    listener = document["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    _, steplane = document["static_resources"]["clusters"]
    (endpoint,) = steplane["load_assignment"]["endpoints"][0]["lb_endpoints"]
    listener["address"] = _at(port)
    endpoint["endpoint"]["address"] = _at(picker)
    if mode:
        manager["http_filters"][0]["typed_config"]["processing_mode"] = mode
    return document | {"admin": {"address": _at(admin)}}


def _at(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


class Site:
    """house: the picker with its engines. client: speaks to Envoy. log: Envoy's access log so far."""

    def __init__(self, house: House, client: httpx.AsyncClient, folder: Path) -> None:
        self.house = house
        self.client = client
        self._folder = folder

    @property
    def log(self) -> str:
        return (self._folder / "out").read_text()


@contextlib.asynccontextmanager
async def site(program: Path, mode: str | dict[str, str], **options: Any) -> AsyncIterator[Site]:
    """Envoy in that mode before engines; `options` are the house's."""
    port, admin = _free_port(), _free_port()
    config = {"epp": {"listen": "127.0.0.1:0"}, **options.pop("config", {})}
    async with house(plane=EndpointPicker(), config=config, **options) as running:
        document = envoy_config(
            port, admin, running.gateway.data_address[1], MODES[mode] if isinstance(mode, str) else mode
        )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "envoy.json").write_text(json.dumps(document))
            with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
                process = await asyncio.create_subprocess_exec(
                    str(program),
                    *("-c", str(folder / "envoy.json"), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"),
                    stdout=out,
                    stderr=err,
                )
            try:
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
                    await _ready(admin, process, folder)
                    yield Site(running, client, folder)
            finally:
                process.terminate()
                await process.wait()


async def _ready(admin: int, process: asyncio.subprocess.Process, folder: Path) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
        while True:
            assert process.returncode is None, (folder / "err").read_text()
            with contextlib.suppress(httpx.TransportError):
                if (await client.get(f"http://127.0.0.1:{admin}/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
