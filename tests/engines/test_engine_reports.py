"""What a real SGLang says of its load and of how it was started, as balancing and capabilities read it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from gateway.feed.loads import EngineLoad, ask_load
from gateway.feed.serverfacts import ServerFacts, ask_facts
from gateway.feed.session import open_session
from tests.clients.case import MODEL

pytestmark = pytest.mark.timeout(1800)

WITHIN_S = 60.0


async def load_of(url: str) -> EngineLoad | None:
    session = open_session("loads")
    try:
        return await ask_load(session, url, "sglang", WITHIN_S)
    finally:
        await session.close()


async def facts_of(url: str) -> ServerFacts | None:
    session = open_session("loads")
    try:
        return await ask_facts(session, url, "sglang", WITHIN_S)
    finally:
        await session.close()


def test_sglang_says_how_it_was_started(sglang_url: str) -> None:
    facts = asyncio.run(facts_of(sglang_url))
    assert facts == ServerFacts("xgrammar", speculative=False, models=frozenset({MODEL}), lora=frozenset())


def test_sglang_says_what_runs_on_it(sglang_url: str) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "say it"}],
        "max_tokens": 200,
        "ignore_eos": True,
    }
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(httpx.post, f"{sglang_url}/v1/chat/completions", json=body, timeout=WITHIN_S * 5)
            for _ in range(3)
        ]
        deadline = time.monotonic() + WITHIN_S
        load = None
        while (load is None or load.running < 3) and time.monotonic() < deadline:
            load = asyncio.run(load_of(sglang_url))
        assert load is not None
        assert load.running == 3
        assert load.cache_usage is not None
        assert 0.0 < load.cache_usage < 1.0
        for each in asked:
            assert each.result().status_code == 200
