"""Prefix affinity beside the `cache_aware` policy of sglang-router: the share of all prompts that was in the cache."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from loadtest.bench_routing.conversations import Messages, trace
from loadtest.breaker.site import answers, cache_aware, gateway, process
from loadtest.wire.contenders import CONTENDERS
from loadtest.wire.rounds import free_port

_REPLICAS = 4
_AT_ONCE = 16
_PEER = "sglang-router"
CACHE_AWARE = "sglang-router cache_aware"


@dataclass(frozen=True, slots=True)
class PrefixRun:
    """What one way to balance came to. `loads`: requests of each replica."""

    balance: str
    hit_rate: float
    failed: int
    loads: tuple[int, ...]
    seconds: float


def install_router() -> None:
    """Make the router's environment, where there is none yet. Raises CalledProcessError."""
    (peer,) = [each for each in CONTENDERS if each.name == _PEER]
    if peer.missing() is not None:
        assert peer.install is not None
        peer.install()


async def compare(balances: Sequence[str], requests: int, folder: Path) -> list[PrefixRun]:
    """The same conversations by each way to balance, one after the other, on replicas with empty caches."""
    conversations = list(trace(requests))
    ports = [free_port() for _ in range(_REPLICAS)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    log = folder / "engines.log"
    command = [sys.executable, "-m", "loadtest.bench_routing.cachedengine", *map(str, ports)]
    runs: list[PrefixRun] = []
    with process(command, log) as engines:
        for url in urls:
            await answers(f"{url}/health", engines, log)
        for balance in balances:
            front = cache_aware(_PEER, urls, folder) if balance == CACHE_AWARE else _steplane(balance, urls, folder)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, front as url:
                for each in urls:
                    await session.post(f"{each}/flush_cache")
                began = time.perf_counter()
                failed = await _send_all(session, url, conversations)
                seconds = time.perf_counter() - began
                counts = [await _counts(session, each) for each in urls]
            known, asked = (sum(each[key] for each in counts) for key in ("known", "asked"))
            loads = tuple([each["requests"] for each in counts])
            runs.append(PrefixRun(balance, known / max(asked, 1), failed, loads, seconds))
    return runs


@asynccontextmanager
async def _steplane(balance: str, replicas: Sequence[str], folder: Path) -> AsyncIterator[str]:
    pool = f"{{replicas: [{', '.join(replicas)}], feed: 'off', balance: {balance}}}"
    async with gateway(balance, f"default_pool: p\npools: {{p: {pool}}}", folder) as running:
        yield running.url


async def _send_all(session: aiohttp.ClientSession, url: str, conversations: Sequence[Messages]) -> int:
    """Send all in order, so many at once; how many failed."""
    turn = asyncio.Semaphore(_AT_ONCE)
    failed = 0

    async def send(messages: Messages) -> None:
        nonlocal failed
        body = orjson.dumps({"model": "m", "messages": messages, "max_tokens": 1})
        try:
            async with session.post(
                f"{url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
            ) as response:
                await response.read()
                failed += response.status != 200
        except aiohttp.ClientError:
            failed += 1
        finally:
            turn.release()

    sent = []
    for messages in conversations:
        await turn.acquire()
        sent.append(asyncio.create_task(send(messages)))
    await asyncio.gather(*sent)
    return failed


async def _counts(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    async with session.get(f"{url}/counts") as response:
        counts: dict[str, int] = await response.json()
        return counts
