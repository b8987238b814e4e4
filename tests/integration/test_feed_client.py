"""A subscription to a step feed: whatever the other side does, records come once, in order, and nothing is raised."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest

from gateway.feed.records import Alive, Compile, Hello, Offence, Rollup, Step
from gateway.feed.stepfeed import Patience, StepFeed
from gateway.feed.target import Target
from tests.waiting import until

PATIENT = Patience(20.0, 20.0, 0.01, 0.05, 0.05)
"""Comes back quickly, and leaves nobody who is only slow."""
IMPATIENT = Patience(20.0, 0.4, 0.01, 0.05, 0.05)
"""Leaves who falls silent."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
PATIENCE_S = 20.0

Script = Callable[["Peer"], Awaitable[None]]


def hello(boot: str = "b1", next_seq: int = 1) -> dict[str, Any]:
    return {"event": "hello", "engine": "sglang", "version": "1", "boot": boot, "next_seq": next_seq}


def step(seq: int) -> dict[str, Any]:
    us = {"step_us": 9.0, "hook_us": 5.0, "cpu_us": 5.0}
    return {"event": "step", "seq": seq, "at": 0.0, "requests": {"a": {"stop": 5.0}}, **us}


def rollup(after: int) -> dict[str, Any]:
    sums = dict.fromkeys(("steps", "starved", "step_us", "step_max_us", "forward_us", "hook_us", "sequences"), 1)
    return {"event": "rollup", "after": after, "at": 0.0, "requests": {}, **sums}


ALIVE = {"event": "alive", "next_seq": 9, "step_runs_s": 0.0}
END = {"event": "end", "reason": "engine_gone", "next_seq": 9}


class Peer:
    """One connection of the subscriber, as a scripted feed sees it."""

    def __init__(self, target: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        self.path, _, query = target.partition("?")
        self.query = dict(parse_qsl(query))
        self.headers = headers
        self._writer = writer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def begin(self, *lines: dict[str, Any]) -> None:
        await self.raw(HEAD)
        if lines:
            await self.lines(*lines)

    async def lines(self, *lines: dict[str, Any]) -> None:
        await self.bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    async def bytes(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def keep_alive(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            await self.lines(ALIVE)


class Heard:
    """Takes records, and notes what it was told in order."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.rollups: list[int] = []
        self.gone_boots: list[str] = []
        self.connections: list[bool] = []
        self.broken = False

    def step(self, record: Step) -> None:
        self.seqs.append(record.seq)
        if self.broken:
            raise RuntimeError("told too much")

    def compile(self, record: Compile) -> None:
        self.seqs.append(record.seq)

    def offence(self, record: Offence) -> None:
        self.seqs.append(record.seq)

    def rollup(self, record: Rollup) -> None:
        self.rollups.append(record.after)

    def alive(self, record: Alive) -> None:
        """It says so."""

    def gone(self, boot: str) -> None:
        self.gone_boots.append(boot)

    def connected(self, hello: Hello | None) -> None:
        self.connections.append(hello is not None)


class Scene:
    """A subscription to a feed that follows one script for each connection, the last one for all that follow."""

    def __init__(self, feed: StepFeed, heard: Heard, peers: list[Peer]) -> None:
        self.feed = feed
        self.heard = heard
        self.peers = peers


@contextlib.asynccontextmanager
async def subscribed(
    *scripts: Script, token: str = "", budget_us: float | None = 1000.0, patience: Patience = PATIENT
) -> AsyncIterator[Scene]:
    peers: list[Peer] = []
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            peer = Peer(head[0].split(" ")[1], headers, writer)
            peers.append(peer)
            await scripts[min(len(peers), len(scripts)) - 1](peer)
        writer.close()
        serving.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    heard = Heard()
    target = Target("r", "http://127.0.0.1:1", feed=f"http://127.0.0.1:{port}", token=token, budget_us=budget_us)
    async with aiohttp.ClientSession() as session:
        feed = StepFeed(target, heard, session, random.Random(1), patience)
        running = asyncio.create_task(feed.run())
        try:
            yield Scene(feed, heard, peers)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for task in tuple(serving):
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            server.close()


async def silent(peer: Peer) -> None:
    await asyncio.sleep(PATIENCE_S)


async def test_it_asks_for_what_it_needs_and_for_no_more() -> None:
    async def script(peer: Peer) -> None:
        await peer.begin(hello())
        await peer.keep_alive()

    async with subscribed(script, token="secret") as scene:
        await until(lambda: scene.feed.connected)
        (peer,) = scene.peers
        assert peer.path == "/steps"
        assert peer.query == {"from": "newest", "min_own_us": "250", "rollup_s": "1"}
        assert peer.headers["authorization"] == "bearer secret"


async def test_where_nothing_is_judged_no_step_is_asked_for() -> None:
    async with subscribed(silent, budget_us=None) as scene:
        await until(lambda: bool(scene.peers))
        assert float(scene.peers[0].query["min_own_us"]) >= 1e9


async def test_a_lost_connection_resumes_behind_the_last_rollup_and_tells_nothing_twice() -> None:
    async def first(peer: Peer) -> None:
        await peer.begin(hello(next_seq=5), step(5), step(6), rollup(6), step(7), step(9))

    async def second(peer: Peer) -> None:
        await peer.begin(hello(next_seq=11), step(7), step(9), step(10), rollup(10))
        await peer.keep_alive()

    async with subscribed(first, second) as scene:
        await until(lambda: scene.heard.rollups == [6, 10])
        assert scene.peers[1].query["boot"] == "b1"
        assert scene.peers[1].query["after"] == "6"
        assert scene.heard.seqs == [5, 6, 7, 9, 10]
        assert scene.heard.connections == [True, False, True]
        assert scene.heard.gone_boots == []


async def test_the_end_of_an_engine_is_told_once_though_its_feed_lingers() -> None:
    async def ends(peer: Peer) -> None:
        await peer.begin(hello(), END)

    async def restarted(peer: Peer) -> None:
        await peer.begin(hello("b2"), step(1))
        await peer.keep_alive()

    async with subscribed(ends, ends, ends, restarted) as scene:
        await until(lambda: scene.heard.seqs == [1])
        assert scene.heard.gone_boots == ["b1"]
        assert scene.heard.connections == [True, False, True]
        assert scene.feed.boots == 2
        assert scene.feed.connected


async def test_a_new_boot_tells_of_the_end_of_the_old_one_and_everything_in_it_is_new() -> None:
    async def first(peer: Peer) -> None:
        await peer.begin(hello(next_seq=500), step(500), rollup(500))

    async def second(peer: Peer) -> None:
        await peer.begin(hello("b2", next_seq=4), step(1), step(2), step(3), rollup(3))

    async def third(peer: Peer) -> None:
        await peer.begin(hello("b2", next_seq=5), step(4))
        await peer.keep_alive()

    async with subscribed(first, second, third) as scene:
        await until(lambda: scene.heard.seqs == [500, 1, 2, 3, 4])
        assert scene.heard.gone_boots == ["b1"]
        assert scene.peers[2].query["boot"] == "b2"
        assert scene.peers[2].query["after"] == "3"


async def test_records_may_come_in_any_pieces() -> None:
    data = b"".join(json.dumps(line).encode() + b"\n" for line in (hello(), step(1), step(2), rollup(2)))

    async def script(peer: Peer) -> None:
        await peer.begin()
        for at in range(len(data)):
            await peer.bytes(data[at : at + 1])
        await peer.keep_alive()

    async with subscribed(script) as scene:
        await until(lambda: scene.heard.rollups == [2])
        assert scene.heard.seqs == [1, 2]


async def test_garbage_between_records_is_counted_and_passed_over() -> None:
    async def script(peer: Peer) -> None:
        await peer.begin(hello(), step(1), {"event": "weather"}, {"event": "step", "seq": 7}, {})
        await peer.bytes(b"\xff\xfe\n\n[]\nnull\n")
        await peer.lines(step(2) | {"seq": "2"}, step(3) | {"requests": 7}, rollup(1) | {"after": "x"}, step(4))
        await peer.keep_alive()

    async with subscribed(script) as scene:
        await until(lambda: 4 in scene.heard.seqs)
        assert scene.heard.seqs in ([1, 4], [1, 3, 4])
        assert scene.feed.garbage + scene.feed.failed >= 7
        assert scene.feed.connected


async def test_who_is_told_may_fail_without_an_end() -> None:
    async def script(peer: Peer) -> None:
        await peer.begin(hello(), *(step(seq) for seq in range(1, 300)))
        await peer.keep_alive()

    async with subscribed(script) as scene:
        scene.heard.broken = True
        await until(lambda: len(scene.heard.seqs) == 299)
        assert scene.feed.failed == 299
        assert scene.feed.connected


async def test_what_was_lost_is_counted() -> None:
    async def script(peer: Peer) -> None:
        await peer.begin(hello(), step(1), {"event": "lost", "count": 12, "after": 1}, step(14))
        await peer.keep_alive()

    async with subscribed(script) as scene:
        await until(lambda: scene.heard.seqs == [1, 14])
        assert scene.feed.lost == 12


def answering(response: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.raw(response)

    return script


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (b"", "ServerDisconnectedError"),
        (b"what?\r\n\r\n", ""),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "404 on /steps"),
        (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "another token"),
        (b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/steps\r\ncontent-length: 0\r\n\r\n", "307 on /steps"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n<html></html>\n", "no record of a step feed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 57\r\n\r\n" + json.dumps(ALIVE).encode() + b"\n", "greeting"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", ""),
        (HEAD + b"zz\r\n", ""),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20), "a line of more than"),
    ],
)
async def test_what_is_no_step_feed_is_asked_again_later(response: bytes, said: str) -> None:
    looked_at = asyncio.Event()

    async def feed(peer: Peer) -> None:
        await looked_at.wait()
        await peer.begin(hello(), step(1))
        await peer.keep_alive()

    async with subscribed(answering(response), answering(response), feed) as scene:
        await until(lambda: len(scene.peers) == 3)
        assert not scene.feed.connected
        assert said in (scene.feed.last_error or "")
        looked_at.set()
        await until(lambda: scene.heard.seqs == [1])
        assert scene.feed.last_error is None


async def test_a_feed_that_falls_silent_is_left() -> None:
    async def greets(peer: Peer) -> None:
        await peer.begin(hello())
        await silent(peer)

    async def drips(peer: Peer) -> None:
        await peer.begin(hello())
        while True:
            await asyncio.sleep(0.05)
            await peer.bytes(b".")

    async with subscribed(greets, drips, silent, patience=IMPATIENT) as scene:
        await until(lambda: len(scene.peers) >= 3)
        assert scene.heard.connections == [True, False, True, False]


async def test_endless_garbage_is_left() -> None:
    async def script(peer: Peer) -> None:
        await peer.begin(hello())
        while True:
            await peer.bytes(b"garbage\n" * 10)

    async with subscribed(script, silent) as scene:
        await until(lambda: len(scene.peers) == 2)
        assert "no records" in (scene.feed.last_error or "")


async def test_a_refused_connection_is_tried_again_and_told_as_it_is() -> None:
    heard = Heard()
    async with aiohttp.ClientSession() as session:
        feed = StepFeed(
            Target("r", "http://127.0.0.1:1", feed="http://127.0.0.1:1"), heard, session, random.Random(1), PATIENT
        )
        running = asyncio.create_task(feed.run())
        await until(lambda: "127.0.0.1" in (feed.last_error or ""))
        feed.hurry()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert heard.connections == []
