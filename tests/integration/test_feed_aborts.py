"""Aborts: a few at a time for each replica, none that comes too late to be of use, and nothing raised."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import structlog
from aiohttp import web

from gateway.feed import abort
from gateway.feed.abort import Aborts, FeedDoor

from .wire.harness import until


@dataclass
class Replica:
    """Takes aborts, each when `open` is set."""

    name: str = "a"
    url: str = ""
    rids: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0
    status: int = 200
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.open.wait()
        self.rids.append((await request.json())["rid"])
        self.running -= 1
        return web.Response(status=self.status)


@asynccontextmanager
async def listening(replica: Replica) -> AsyncIterator[Replica]:
    app = web.Application()
    app.router.add_post("/{path:abort|abort_request}", replica.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    replica.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield replica
    finally:
        replica.open.set()
        await runner.cleanup()


@asynccontextmanager
async def aborting(replica: Replica) -> AsyncIterator[Aborts]:
    aborts = Aborts(feed_of=lambda _: FeedDoor(replica.url, {}))
    try:
        yield aborts
    finally:
        await aborts.close()


async def test_of_many_a_few_are_on_their_way_at_a_time_and_all_arrive() -> None:
    async with listening(Replica()) as replica, aborting(replica) as aborts:
        wanted = [f"r{number}" for number in range(100)]
        for rid in wanted:
            aborts.abort(replica, (rid,))
        await until(lambda: replica.running == 4)
        replica.open.set()
        await until(lambda: len(replica.rids) == len(wanted))
        assert sorted(replica.rids) == sorted(wanted)
        assert replica.most == 4


async def test_after_a_pause_further_ones_are_sent() -> None:
    async with listening(Replica(status=202)) as replica, aborting(replica) as aborts:
        replica.open.set()
        aborts.abort_exactly(replica, ("first",))
        await until(lambda: replica.rids == ["first"])
        aborts.abort_exactly(replica, ("second", "third"))
        # Who sends the first may still be at it, and send one of these beside who sends the other.
        await until(lambda: sorted(replica.rids) == ["first", "second", "third"])


async def test_what_waited_until_it_is_of_no_use_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(Replica()) as replica, aborting(replica) as aborts:
        for rid in ("1", "2", "3", "4"):
            aborts.abort(replica, (rid,))
        await until(lambda: replica.running == 4)
        monkeypatch.setattr(abort, "_WITHIN_S", 0.0)
        aborts.abort(replica, ("late",))
        monkeypatch.undo()
        aborts.abort(replica, ("in time",))
        replica.open.set()
        await until(lambda: "in time" in replica.rids)
        assert "late" not in replica.rids


async def test_more_than_can_be_remembered_are_dropped_and_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abort, "_MOST_WAITING", 10)
    async with listening(Replica()) as replica, aborting(replica) as aborts:
        with structlog.testing.capture_logs() as logs:
            for number in range(50):
                aborts.abort(replica, (str(number),))
            replica.open.set()
            await until(lambda: len(replica.rids) == 10)
        assert [entry["event"] for entry in logs] == ["aborts_dropped"]


async def test_a_replica_that_takes_none_is_named_once_in_the_log() -> None:
    async with listening(Replica(status=500)) as replica, aborting(replica) as aborts:
        replica.open.set()
        with structlog.testing.capture_logs() as logs:
            aborts.abort(replica, tuple(str(number) for number in range(10)))
            await until(lambda: len(replica.rids) == 10)
            aborts.abort(Replica("b", "http://127.0.0.1:1"), ("x", "y"))
            await until(lambda: len(logs) == 2)
        assert [(entry["event"], entry["replica"]) for entry in logs] == [("abort_failed", "a"), ("abort_failed", "b")]
