"""A client that leaves, with a real engine loop behind the gateway: its own request ends, and only that."""

import asyncio
import json
from collections.abc import Iterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Gateway
from gateway.control.config import parse_config
from tests.clients.case import MODEL
from tests.clients.served import simulator

from .harness import CHAT, PATIENCE_S, House, request

NEIGHBOURS = 17
"""One more than there are digits: an id of all digits then begins another, if ids are not of one length."""
TOKENS = 100
"""Five seconds: so long all of them run together, for the test to see it."""
JSON = "content-type: application/json"


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """A replica slow enough that all requests run at the same time, whatever else the machine does."""
    with simulator("left", "--forward-base-us", "50000") as url:
        yield url


def chat(tokens: int) -> bytes:
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    return request(CHAT, {"model": MODEL, "messages": messages, "max_tokens": tokens, "ignore_eos": True}, JSON)


async def engine_metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    async with session.get(f"{url}/metrics") as got:
        text = await got.text()
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


async def running_requests(session: aiohttp.ClientSession, url: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await engine_metric(session, url, "sglang:num_running_reqs") != count:  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0.01)


async def test_the_engine_drops_what_its_client_has_left_and_nothing_else(engine: str) -> None:
    config = {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "default_pool": "only",
        "pools": {"only": {"replicas": [engine], "health": {"timeout_s": PATIENCE_S}}},
    }
    house = House(Gateway(parse_config(json.dumps(config))), {})
    try:
        await house.gateway.start()
        await house.gateway.wait_all_up()
        await check(house, engine)
    finally:
        await house.close()


async def check(house: House, engine: str) -> None:
    async with aiohttp.ClientSession() as session:
        leaving = await house.client()
        await leaving.send(chat(3000))
        await running_requests(session, engine, 1)
        neighbours = [await house.client() for _ in range(NEIGHBOURS)]
        for neighbour in neighbours:
            await neighbour.send(chat(TOKENS))
        await running_requests(session, engine, 1 + NEIGHBOURS)
        leaving.close()
        await running_requests(session, engine, NEIGHBOURS)
        for neighbour in neighbours:
            answer = json.loads((await neighbour.response()).body)
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["completion_tokens"] == TOKENS
        await running_requests(session, engine, 0)
