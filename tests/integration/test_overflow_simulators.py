"""Chat that finds no room in its pool, beside a replica for grammars: that is used while it is idle, not while slow.

Real grammars on simulated replicas; what decides is which replica takes a request, never how long it took.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.clients.case import MODEL
from tests.clients.served import Served, gateway, simulator

WORDS = r"""root ::= ch+ ([ \n] ch+)*
ch ::= [0-9a-zA-Z.,!?]"""
"""About 2.4 ms for every token: more than chat's whole budget."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # Steps so long that no stream ends by itself.
    flags = ("--forward-base-us", "50000")
    with simulator("chat-replica", *flags) as chat, simulator("grammar-replica", *flags) as grammar:
        pools = {"chat": {"chat-replica": chat}, "grammar": {"grammar-replica": grammar}}
        settings = {
            "chat": {
                "step_budget_us": 1000,
                "admission": {"max_in_flight": 2, "max_wait_s": 300},
                "when_full": {"spill": "grammar"},
            },
            "grammar": {
                "step_budget_us": 6000,
                "hard_limit_us": 10_000_000,
                "admission": {"max_in_flight": 8, "max_wait_s": 300},
            },
        }
        rules = [{"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"}]
        with gateway(tmp_path_factory.mktemp("overflow"), pools, rules, settings) as running:
            yield running


async def test_idle_grammar_replicas_help_and_busy_ones_do_not_hurt(served: Served) -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        running(session, served),
        running(session, served),
    ):
        async with running(session, served) as guest:
            assert guest == "grammar"
        async with running(session, served, ebnf=WORDS) as structured:
            assert structured == "grammar"
            waits = asyncio.create_task(once(session, served))
            await until_waiting(session, served, "chat")
            assert (await pool(session, served, "grammar"))["replicas"][0]["guests"] == 0
        # The grammar's stream has gone, and its replica has room to spare.
        assert await waits == "grammar"


@contextlib.asynccontextmanager
async def running(session: aiohttp.ClientSession, served: Served, **parameters: Any) -> AsyncIterator[str]:
    """A stream that runs as long as the block does; gives the pool that took it."""
    async with session.post(f"{served.url}/v1/chat/completions", json=body(4000, **parameters)) as response:
        assert response.status == 200, await response.text()
        assert await response.content.readany()
        yield response.headers["x-steplane-pool"]
        response.close()


async def once(session: aiohttp.ClientSession, served: Served) -> str:
    """The pool that took a short request."""
    async with session.post(f"{served.url}/v1/chat/completions", json=body(4)) as response:
        assert response.status == 200, await response.text()
        await response.read()
        return response.headers["x-steplane-pool"]


def body(tokens: int, **parameters: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Words, please."}]
    length = {"max_tokens": tokens, "ignore_eos": True}
    return {"model": MODEL, "messages": messages, "stream": True, "temperature": 0, **length, **parameters}


async def until_waiting(session: aiohttp.ClientSession, served: Served, name: str) -> None:
    """Return when a request waits for the pool."""
    waiting = 0
    while not waiting:
        await asyncio.sleep(0.05)
        waiting = (await pool(session, served, name))["queue"]["waiting"]


async def pool(session: aiohttp.ClientSession, served: Served, name: str) -> dict[str, Any]:
    """What the API says of a pool."""
    async with session.get(f"{served.admin_url}/api/v1/pools") as response:
        pools: list[dict[str, Any]] = (await response.json())["pools"]
    return next(each for each in pools if each["name"] == name)
