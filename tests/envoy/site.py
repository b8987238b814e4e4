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

from gateway.epp.service import EndpointPicker
from tests.integration.gateway.harness import House, house
from tests.integration.wire.harness import PATIENCE_S

MODES = {
    "duplex": {
        "request_header_mode": "SEND",
        "response_header_mode": "SEND",
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_trailer_mode": "SEND",
    },
    "buffered": {
        "request_header_mode": "SEND",
        "response_header_mode": "SEND",
        "request_body_mode": "BUFFERED",
        "response_body_mode": "STREAMED",
    },
}
_HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


def _typed(name: str, **rest: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/{name}", **rest}


def envoy_config(port: int, admin: int, picker: int, mode: dict[str, str]) -> dict[str, Any]:
    """As docs/envoy.md has it, with other ports."""
    ext_proc = _typed(
        "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "steplane"}, "timeout": "600s"},
        processing_mode=mode,
        message_timeout="600s",
        request_attributes=["source.address"],
        metadata_options={"receiving_namespaces": {"untyped": ["envoy.lb", "steplane"]}},
    )
    router = _typed("envoy.extensions.filters.http.router.v3.Router")
    manager = _typed(
        _HCM,
        stat_prefix="clients",
        use_remote_address=True,
        access_log=[
            {
                "name": "stdout",
                "typed_config": _typed(
                    "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                    log_format={
                        "text_format_source": {
                            "inline_string": "%RESPONSE_CODE% %RESPONSE_CODE_DETAILS% "
                            "pool=%DYNAMIC_METADATA(steplane:pool)%\n"
                        }
                    },
                ),
            }
        ],
        route_config={
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "replicas", "timeout": "0s"}}],
                }
            ]
        },
        http_filters=[
            {"name": "envoy.filters.http.ext_proc", "typed_config": ext_proc},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    )
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}},
        "static_resources": {
            "listeners": [
                {
                    "name": "clients",
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                    "per_connection_buffer_limit_bytes": 67108864,
                    "filter_chains": [
                        {
                            "filters": [
                                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "replicas",
                    "type": "ORIGINAL_DST",
                    "lb_policy": "CLUSTER_PROVIDED",
                    "connect_timeout": "2s",
                    "original_dst_lb_config": {
                        "use_http_header": True,
                        "http_header_name": "x-gateway-destination-endpoint",
                    },
                },
                {
                    "name": "steplane",
                    "type": "STATIC",
                    "connect_timeout": "1s",
                    "typed_extension_protocol_options": _HTTP2,
                    "load_assignment": {
                        "cluster_name": "steplane",
                        "endpoints": [
                            {
                                "lb_endpoints": [
                                    {
                                        "endpoint": {
                                            "address": {
                                                "socket_address": {"address": "127.0.0.1", "port_value": picker}
                                            }
                                        }
                                    }
                                ]
                            }
                        ],
                    },
                },
            ],
        },
    }


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
async def site(program: Path, mode: str, **options: Any) -> AsyncIterator[Site]:
    """Envoy in that mode before engines; `options` are the house's."""
    port, admin = _free_port(), _free_port()
    config = {"epp": {"listen": "127.0.0.1:0"}, **options.pop("config", {})}
    async with house(plane=EndpointPicker(), config=config, **options) as running:
        document = envoy_config(port, admin, running.gateway.data_address[1], MODES[mode])
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
