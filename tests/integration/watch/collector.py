"""A collector that takes OTLP over HTTP, and keeps what it is told."""

import asyncio
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.integration.wire.harness import PATIENCE_S


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as plain data."""
    found = {}
    for each in attributes:
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


class Span:
    """One span, as it was sent; `parent` is "" without one."""

    def __init__(self, sent: dict[str, Any]) -> None:
        self.sent = sent
        self.name: str = sent["name"]
        self.trace: str = sent["traceId"]
        self.id: str = sent["spanId"]
        self.parent: str = sent.get("parentSpanId", "")
        self.began_ns = int(sent["startTimeUnixNano"])
        self.ended_ns = int(sent["endTimeUnixNano"])
        self.failed = sent.get("status", {}).get("code") == 2
        self.attributes = plain(sent.get("attributes", []))


@dataclass
class Collector:
    """`spans`: what came, in the order in which it came. `headers`: of the last request."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    resource: dict[str, str] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.post("/v1/traces", self._take)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def named(self, name: str) -> Span:
        """The first span of that name; waits for it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for span in self.spans:
                    if span.name == name:
                        return span
                await asyncio.sleep(0.02)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.headers = dict(request.headers)
        for resource in json.loads(body)["resourceSpans"]:
            self.resource = plain(resource["resource"]["attributes"])
            for scope in resource["scopeSpans"]:
                self.spans.extend(map(Span, scope["spans"]))
        return web.json_response({})
