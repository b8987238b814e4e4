"""An API server of Kubernetes, as far as lists and watches of one resource go, in the test's own loop.

Speaks the watch protocol as it is: one JSON object a line, bookmarks, versions that grow, 410 for one that was
forgotten (as the answer to a watch, and as an event in the middle of one). What goes wrong is what the test asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from gateway.discovery.member import Member
from tests.integration.wire.harness import PATIENCE_S

PODS = "/api/v1/namespaces/{namespace}/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


class ApiServer:
    """`lists` and `watches` are the queries that came; `refuses`: what it answers instead, while that is set."""

    def __init__(self) -> None:
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.refuses: int | None = None
        self.version = 100
        self.forgotten = 0
        """Up to this version."""
        self._objects: dict[str, dict[str, Any]] = {}
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._streams: set[web.StreamResponse] = set()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get(PODS, self._answer)
        app.router.add_get(SLICES, self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Be gone; `start` brings it back on the same port."""
        await self.drop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def put(self, *things: dict[str, Any]) -> None:
        """Add or change objects; the watchers are told of all at once."""
        events = []
        for thing in things:
            name = thing["metadata"]["name"]
            kind = "MODIFIED" if name in self._objects else "ADDED"
            self._objects[name] = thing
            events.append(self._happened(kind, thing))
        await self._tell(*events)

    async def delete(self, name: str) -> None:
        await self._tell(self._happened("DELETED", self._objects.pop(name)))

    async def bookmark(self) -> None:
        """Tell the watchers how far they are; nothing else has happened to what they watch."""
        self.version += 50
        await self._tell({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    async def say(self, event: dict[str, Any]) -> None:
        """An event as it is."""
        await self._tell(event)

    def forget(self) -> None:
        """Compact: no watch can go on from a version of before."""
        self.version += 1
        self.forgotten = self.version
        self._history.clear()

    async def drop(self) -> None:
        """Cut the connections of all watchers."""
        for stream in list(self._streams):
            transport = stream._req.transport if stream._req is not None else None
            if transport is not None:
                transport.abort()

    async def watched(self, times: int = 1) -> None:
        """Wait until that many watches have come."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.watches) >= times)

    def _happened(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        thing = {**thing, "metadata": {**thing["metadata"], "resourceVersion": str(self.version)}}
        event = {"type": kind, "object": thing}
        self._history.append((self.version, event))
        return event

    async def _tell(self, *events: dict[str, Any]) -> None:
        lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        for stream in list(self._streams):
            with contextlib.suppress(ConnectionError):
                await stream.write(lines)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if self.refuses is not None:
            return web.json_response({"kind": "Status", "message": "not now"}, status=self.refuses)
        if query.get("watch") in ("true", "True"):
            return await self._watch(request, query)
        self.lists.append(query)
        items = [{**each, "metadata": {**each["metadata"]}} for each in self._objects.values()]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        async with self._changed:
            self.watches.append(query)
            self._changed.notify_all()
        since = int(query["resourceVersion"])
        if since < self.forgotten:
            return web.json_response({"kind": "Status", "code": 410, "message": "too old"}, status=410)
        stream = web.StreamResponse()
        await stream.prepare(request)
        for version, event in self._history:
            if version > since:
                await stream.write(json.dumps(event).encode() + b"\n")
        self._streams.add(stream)
        try:
            await asyncio.Event().wait()
        finally:
            self._streams.discard(stream)
        return stream


@contextlib.asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def kubeconfig(folder: Path, server: ApiServer) -> Path:
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": {"server": server.url}}],
                "users": [{"name": "test", "user": {"token": "token"}}],
            }
        )
    )
    return file


def pod(name: str, address: str = "10.0.0.1", *, ready: bool = True, deleted: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"containers": [{"ports": [{"name": "api", "containerPort": 30000}]}]},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


class Sink:
    """What a producer has said: the last set, and how often; errors, None where all was well again."""

    def __init__(self) -> None:
        self.sets: list[list[Member]] = []
        self.errors: list[str | None] = []
        self._said = asyncio.Condition()

    async def found(self, members: Any) -> None:
        async with self._said:
            self.sets.append(list(members))
            self._said.notify_all()

    def failed(self, why: str | None) -> None:
        self.errors.append(why)

    async def says(self, *names: str | None) -> None:
        """Wait until the last set has these names, and no others."""

        def is_so() -> bool:
            return bool(self.sets) and {member.name for member in self.sets[-1]} == set(names)

        async with asyncio.timeout(PATIENCE_S), self._said:
            await self._said.wait_for(is_so)
