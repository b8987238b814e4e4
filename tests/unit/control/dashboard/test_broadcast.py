"""One document for all who watch: a snapshot, then what has changed."""

import asyncio
from contextlib import aclosing
from typing import Any

import orjson
import pytest

from gateway.control.dashboard import broadcast
from gateway.control.dashboard.broadcast import Broadcast


class Source:
    """A document that tests change, and how often it was asked for."""

    def __init__(self) -> None:
        self.document: dict[str, dict[str, Any]] = {"pools": {"a": {"n": 1}, "b": {"n": 2}}}
        self.composed = 0
        self.many = asyncio.Event()
        """It was asked for more often than a slow one is waited for."""

    async def compose(self) -> dict[str, dict[str, Any]]:
        self.composed += 1
        if self.composed > 20:
            self.many.set()
        return self.document


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "_EVERY_S", 0.01)


def over(source: Source) -> Broadcast:
    return Broadcast(
        source.compose,
        with_snapshot=lambda: {"history": [1, 2]},
        with_change=lambda: {"points": [3]},
        wall=lambda: 12.5,
    )


def read(event: bytes) -> tuple[str, dict[str, Any]]:
    name, _, data = event.decode().strip().split("\n")
    return name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))


async def test_the_first_event_is_all_there_is() -> None:
    source = Source()
    stream = over(source)

    async with aclosing(stream.watch()) as events:
        assert read(await anext(events)) == (
            "snapshot",
            {"now": 12.5, "history": [1, 2], "pools": {"a": {"n": 1}, "b": {"n": 2}}},
        )
    await stream.close()


async def test_the_others_are_what_is_new_changed_or_gone() -> None:
    source = Source()
    stream = over(source)

    async with aclosing(stream.watch()) as events:
        await anext(events)
        assert read(await anext(events)) == ("change", {"now": 12.5, "points": [3]})
        source.document = {"pools": {"b": {"n": 5}, "c": {"n": 3}}}
        changes = [read(await anext(events))[1] for _ in range(3)]

    assert {"b": {"n": 5}, "c": {"n": 3}, "a": None} in [change.get("pools") for change in changes]
    await stream.close()


async def test_what_is_composed_once_is_for_all_and_for_nobody_nothing_is() -> None:
    source = Source()
    stream = over(source)
    watching = [stream.watch() for _ in range(20)]
    for events in watching:
        await anext(events)
    before = source.composed
    seen = [await anext(events) for events in watching]

    assert len(set(seen)) == 1
    assert source.composed - before <= 3
    for events in watching:
        await events.aclose()
    ticking = stream._ticking
    assert ticking is not None
    async with asyncio.timeout(60):
        await ticking
    assert stream._ticking is None


async def test_who_is_too_slow_gets_a_snapshot_in_the_place_of_what_was_missed() -> None:
    source = Source()
    stream = over(source)

    async with aclosing(stream.watch()) as events, asyncio.timeout(60):
        await anext(events)
        await source.many.wait()

        assert read(await anext(events))[0] == "snapshot"
        assert read(await anext(events))[0] == "change"
    await stream.close()


async def test_a_document_that_fails_once_ends_no_stream() -> None:
    source = Source()
    stream = over(source)
    works = source.compose

    async def fails() -> dict[str, dict[str, Any]]:
        stream._compose = works
        raise RuntimeError("not now")

    async with aclosing(stream.watch()) as events, asyncio.timeout(60):
        await anext(events)
        stream._compose = fails
        assert read(await anext(events))[0] == "change"
        assert read(await anext(events))[0] == "change"
    await stream.close()
