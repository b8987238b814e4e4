"""What replicas say that they serve is joined, followed, and kept while they are silent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gateway.feed.catalogue import Catalogue
from tests.integration.wire.harness import until


@dataclass
class Engine:
    """Answers `/v1/models` as it is told to."""

    name: str
    models: list[str]
    status: int = 200
    text: str | None = None
    url: str = ""
    asked: int = 0
    runner: web.AppRunner | None = None
    more: dict[str, Any] = field(default_factory=dict)

    async def list_models(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.text is not None:
            return web.Response(text=self.text, status=self.status)
        data = [{"id": name, "object": "model", "owned_by": self.name, **self.more} for name in self.models]
        return web.json_response({"object": "list", "data": data}, status=self.status)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/models", self.list_models)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"


@asynccontextmanager
async def asking(
    *engines: Engine,
    refresh_s: float = 60.0,
    changed: Callable[[], None] = lambda: None,
    present: list[Engine] | None = None,
) -> AsyncIterator[Catalogue]:
    for engine in engines:
        await engine.start()
    there = engines if present is None else present
    catalogue = Catalogue(lambda: there, refresh_s, clock=asyncio.get_running_loop().time)
    catalogue.changed = changed
    catalogue.start()
    try:
        yield catalogue
    finally:
        await catalogue.close()
        for engine in engines:
            assert engine.runner is not None
            await engine.runner.cleanup()


async def test_the_lists_of_all_replicas_are_joined_and_the_first_word_on_a_model_counts() -> None:
    one, two = Engine("one", ["a", "b"], more={"max_model_len": 4096}), Engine("two", ["b", "c"])
    async with asking(one, two) as catalogue:
        await until(lambda: catalogue.complete)
        assert list(catalogue.models()) == ["a", "b", "c"]
        assert catalogue.models()["b"] == {"id": "b", "object": "model", "owned_by": "one", "max_model_len": 4096}


async def test_a_new_adapter_is_seen_and_told_of() -> None:
    engine = Engine("one", ["a"])
    told: list[int] = []
    async with asking(engine, refresh_s=0.05, changed=lambda: told.append(1)) as catalogue:
        await until(lambda: catalogue.names() == {"a"})
        engine.models.append("a:lora")
        await until(lambda: catalogue.names() == {"a", "a:lora"})
        assert len(told) == 2


async def test_a_replica_that_came_up_again_is_asked_at_once() -> None:
    engine = Engine("one", ["a"])
    async with asking(engine) as catalogue:
        await until(lambda: catalogue.complete)
        engine.models = ["b"]
        catalogue.recheck("one")
        await until(lambda: catalogue.names() == {"b"})
        catalogue.recheck("nobody")


async def test_what_was_said_last_is_kept_while_a_replica_says_nothing_of_use() -> None:
    engine = Engine("one", ["a"])
    async with asking(engine, refresh_s=0.05) as catalogue:
        await until(lambda: catalogue.complete)
        for engine.status, engine.text in (
            (500, None),
            (200, "no JSON"),
            (200, '{"data": 7}'),
            (200, "[" * 2_000_000),
            (200, "[" * 100_000),
        ):
            before = engine.asked
            await until(lambda before=before: engine.asked >= before + 2)  # type: ignore[misc]
            assert catalogue.names() == {"a"}


async def test_one_that_has_no_such_list_serves_nothing_that_is_known() -> None:
    engine = Engine("one", [], status=404)
    async with asking(engine) as catalogue:
        await until(lambda: catalogue.complete)
        assert catalogue.names() == frozenset()


async def test_one_that_does_not_answer_keeps_nobody_waiting() -> None:
    held = asyncio.Event()

    class Silent(Engine):
        async def list_models(self, request: web.Request) -> web.Response:
            await held.wait()
            return await super().list_models(request)

    silent, speaking = Silent("silent", ["b"], status=500), Engine("speaking", ["a"])
    async with asking(silent, speaking, refresh_s=0.05) as catalogue:
        await until(lambda: speaking.asked >= 3)
        assert catalogue.names() == {"a"}
        assert not catalogue.complete
        held.set()
        await until(lambda: silent.asked == 1)
        silent.status = 200
        catalogue.recheck("silent")
        await until(lambda: catalogue.complete)
        assert catalogue.names() == {"a", "b"}


async def test_replicas_come_and_go() -> None:
    one, two = Engine("one", ["a"]), Engine("two", ["b"])
    present = [one, two]
    async with asking(one, two, present=present) as catalogue:
        await until(lambda: catalogue.names() == {"a", "b"})
        present.remove(one)
        await until(lambda: catalogue.names() == {"b"})
        present.append(one)
        await until(lambda: catalogue.names() == {"a", "b"})
