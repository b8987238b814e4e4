"""The watch of Kubernetes: what comes and goes, and that nothing that goes wrong with the API server loses a member."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.discovery.kubernetes import Kubernetes, KubernetesOptions
from tests.integration.wire.harness import until

from .apiserver import ApiServer, Sink, api_server, kubeconfig, pod


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as running:
        yield running


@contextlib.asynccontextmanager
async def watching(folder: Path, server: ApiServer, **options: Any) -> AsyncIterator[Sink]:
    defaults: dict[str, Any] = {
        "namespace": "ai",
        "selector": "app=engine",
        "resource": "pods",
        "port": 30000,
        "scheme": "http",
        "kubeconfig": kubeconfig(folder, server),
        "first_pause_s": 0.02,
        "longest_pause_s": 0.1,
    }
    sink = Sink()
    task = asyncio.create_task(Kubernetes(KubernetesOptions(**{**defaults, **options})).run(sink.found, sink.failed))
    try:
        yield sink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_there_is_listed_and_what_happens_then_is_watched(tmp_path: Path, server: ApiServer) -> None:
    await server.put(pod("a"))
    async with watching(tmp_path, server) as sink:
        await sink.says("a")
        await server.watched()
        assert server.lists == [{"labelSelector": "app=engine"}]
        assert server.watches[0]["resourceVersion"] == str(server.version)
        assert server.watches[0]["allowWatchBookmarks"] == "True"

        await server.put(pod("b", "10.0.0.2"))
        await sink.says("a", "b")
        await server.put(pod("a", ready=False))
        await sink.says("b")
        await server.put(pod("a"))
        await sink.says("a", "b")
        await server.put(pod("b", "10.0.0.2", deleted=True))
        await sink.says("a")
        await server.delete("a")
        await sink.says()
        assert sink.sets[1][0].url == "http://10.0.0.1:30000"


async def test_of_many_changes_at_once_the_outcome_is_told_and_nothing_of_what_changes_no_member(
    tmp_path: Path, server: ApiServer
) -> None:
    places = {f"p{number}": f"10.0.0.{number}" for number in range(100, 250)}
    await server.put(*[pod(name, place, ready=False) for name, place in places.items()])
    async with watching(tmp_path, server) as sink:
        await sink.says()
        await server.watched()
        await server.put(*[pod(name, place) for name, place in places.items()])
        await sink.says(*places)
        told = len(sink.sets)
        assert told < 50

        await server.put(*[pod(name, place) for name, place in places.items()])
        first, *others = places
        await server.delete(first)
        await sink.says(*others)
        assert len(sink.sets) == told + 1


async def test_a_dropped_watch_goes_on_where_it_was(tmp_path: Path, server: ApiServer) -> None:
    await server.put(pod("a"))
    async with watching(tmp_path, server) as sink:
        await server.watched()
        await server.put(pod("b", "10.0.0.2"))
        await sink.says("a", "b")
        seen = server.version

        await server.drop()
        await server.put(pod("c", "10.0.0.3"))  # while nobody watches

        await sink.says("a", "b", "c")
        assert len(server.lists) == 1
        assert server.watches[1]["resourceVersion"] == str(seen)


async def test_a_bookmark_is_where_the_next_watch_begins(tmp_path: Path, server: ApiServer) -> None:
    await server.put(pod("a"))
    async with watching(tmp_path, server) as sink:
        await server.watched()
        await server.bookmark()
        await server.put(pod("b", "10.0.0.2"))
        await sink.says("a", "b")
        await server.bookmark()
        marked = server.version

        def marked_watch() -> bool:
            return server.watches[-1]["resourceVersion"] == str(marked)

        while not marked_watch():
            await server.drop()
            await server.watched(len(server.watches) + 1)

        assert len(server.lists) == 1
        assert len(sink.sets) == 2


@pytest.mark.parametrize("how", ["answer", "event"])
async def test_a_version_that_is_gone_means_to_list_again(tmp_path: Path, server: ApiServer, how: str) -> None:
    await server.put(pod("a"))
    await server.put(pod("b", "10.0.0.2"))
    async with watching(tmp_path, server) as sink:
        await sink.says("a", "b")
        await server.watched()

        await server.delete("a")
        await sink.says("b")
        server.forget()
        if how == "answer":
            await server.drop()
        else:
            await server.say({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
        await server.put(pod("c", "10.0.0.3"))

        await sink.says("b", "c")
        assert len(server.lists) == 2
        assert set() not in [{member.name for member in members} for members in sink.sets]


@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_while_the_server_refuses_the_last_known_set_holds(
    tmp_path: Path, server: ApiServer, status: int
) -> None:
    await server.put(pod("a"))
    async with watching(tmp_path, server) as sink:
        await sink.says("a")
        await server.watched()
        server.refuses = status
        await server.drop()
        await until(lambda: any(str(status) in str(error) for error in sink.errors))
        assert len(sink.sets) == 1

        server.refuses = None
        await server.put(pod("b", "10.0.0.2"))
        await sink.says("a", "b")
        await until(lambda: sink.errors[-1] is None)


async def test_while_the_server_is_away_the_last_known_set_holds(tmp_path: Path, server: ApiServer) -> None:
    await server.put(pod("a"))
    async with watching(tmp_path, server) as sink:
        await sink.says("a")
        await server.watched()
        await server.stop()
        await until(lambda: len([error for error in sink.errors if error is not None]) >= 2)
        assert len(sink.sets) == 1

        await server.start()
        await server.put(pod("b", "10.0.0.2"))
        await sink.says("a", "b")


async def test_endpoint_slices_tell_zone_and_port_by_name(tmp_path: Path, server: ApiServer) -> None:
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "zone": "z1", "targetRef": {"name": "a"}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": False}, "targetRef": {"name": "b"}},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": True, "terminating": True}, "targetRef": {"name": "c"}},
        {"addresses": ["10.0.0.4"], "conditions": {}},
    ]
    ports = [{"name": "metrics", "port": 1}, {"name": "api", "port": 30000}]
    await server.put({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})
    async with watching(tmp_path, server, resource="endpointslices", port="api") as sink:
        await sink.says("a", None)
        assert [(member.url, member.zone) for member in sink.sets[0]] == [
            ("http://10.0.0.1:30000", "z1"),
            ("http://10.0.0.4:30000", ""),
        ]


async def test_an_object_of_any_size_is_read(tmp_path: Path, server: ApiServer) -> None:
    async with watching(tmp_path, server) as sink:
        await server.watched()
        large = pod("a")
        large["metadata"]["annotations"] = {"x": "y" * 1_000_000}
        await server.put(large)
        await sink.says("a")
