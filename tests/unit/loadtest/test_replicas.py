"""Emptying the caches of replicas."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from loadtest.client import replicas
from loadtest.client.replicas import ReplicaError, forget


async def replica(refusals: int, asked: list[str]) -> TestServer:
    """One that refuses so many times, as SGLang does while something runs."""

    async def flush(request: web.Request) -> web.Response:
        asked.append(request.method)
        if len(asked) <= refusals:
            return web.Response(status=400, text="there are running requests")
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/flush_cache", flush)
    server = TestServer(app)
    await server.start_server()
    return server


async def test_a_replica_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_AGAIN_S", 0.01)
    asked: list[str] = []
    server = await replica(2, asked)
    try:
        await forget([f"{server.make_url('/')}"])
        assert asked == ["POST"] * 3
    finally:
        await server.close()


async def test_one_that_never_does_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_AGAIN_S", 0.0)
    server = await replica(10**9, [])
    try:
        with pytest.raises(
            ReplicaError, match=r"/flush_cache does not have the caches emptied: 400 there are running requests$"
        ):
            await forget([f"{server.make_url('/')}"])
    finally:
        await server.close()


async def test_without_replicas_nobody_is_asked() -> None:
    await forget([])
