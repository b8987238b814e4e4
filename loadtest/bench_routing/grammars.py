"""Grammar affinity against least requests: simulated replicas that compile real grammars, and count how often they do.

Open loop: requests come when they come, whatever became of those before.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

from loadtest.bench_routing.schemas import schemas, zipf
from loadtest.breaker.site import feed_of, gateway, simulator

_REPLICAS = 4
_SCHEMAS = 200
_EXPONENT = 1.0
_TOKENS = 8
_SUMMARY_S = 0.5
"""How long a replica may take to write down what it has compiled."""


@dataclass(frozen=True, slots=True)
class GrammarRun:
    """What one way to balance came to. `ttft_ms`: sorted."""

    balance: str
    requests: int
    failed: int
    compiles: int
    seen: int
    """Different schemas among the requests: nobody compiles fewer."""
    ttft_ms: tuple[float, ...]

    def quantile(self, share: float) -> float:
        """Milliseconds to the first byte that so many requests stayed below."""
        return self.ttft_ms[min(len(self.ttft_ms) - 1, int(share * len(self.ttft_ms)))] if self.ttft_ms else 0.0


async def compare(balances: Sequence[str], requests: int, rate: float, folder: Path) -> list[GrammarRun]:
    """The same requests by each way to balance, one after the other, on replicas that know no grammar."""
    bodies = [_body(each) for each in schemas(_SCHEMAS)]
    draws = list(zipf(_SCHEMAS, requests, _EXPONENT))
    runs: list[GrammarRun] = []
    async with AsyncExitStack() as site:
        starts = [simulator(f"r{at}", folder, "--forward-base-us", "4000") for at in range(_REPLICAS)]
        replicas = await asyncio.gather(*[site.enter_async_context(each) for each in starts])
        session = await site.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        for balance in balances:
            pool = f"{{replicas: [{', '.join(replicas)}], balance: {balance}}}"
            async with gateway(balance, f"default_pool: p\npools: {{p: {pool}}}", folder) as running:
                # Whatever has to be loaded first is loaded by a grammar that is not counted.
                await asyncio.gather(*[_ask(session, each, _body({"type": "null"})) for each in replicas * 2])
                for replica in replicas:
                    await session.post(f"{replica}/flush_cache")
                before = await _compiles(session, replicas)
                times = await _offer(session, running.url, [bodies[at] for at in draws], rate)
                compiled = await _compiles(session, replicas) - before
            good = sorted(each for each in times if each is not None)
            runs.append(GrammarRun(balance, requests, requests - len(good), compiled, len(set(draws)), tuple(good)))
    return runs


async def _offer(session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], rate: float) -> list[float | None]:
    """Send each body at its time; milliseconds to the first byte of each answer, None where there was none."""
    chance = random.Random(3)
    asked: list[asyncio.Task[float | None]] = []
    due = time.perf_counter()
    for body in bodies:
        due += chance.expovariate(rate)
        pause = due - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        asked.append(asyncio.create_task(_ask(session, url, body)))
    return list(await asyncio.gather(*asked))


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes) -> float | None:
    began = time.perf_counter()
    try:
        async with session.post(
            f"{url}/v1/chat/completions", data=body, headers={"content-type": "application/json"}
        ) as response:
            await response.content.readany()
            first_ms = (time.perf_counter() - began) * 1e3
            await response.read()
            return first_ms if response.status == 200 else None
    except aiohttp.ClientError:
        return None


async def _compiles(session: aiohttp.ClientSession, replicas: Sequence[str]) -> int:
    """Grammars that the replicas have compiled in their lives."""
    await asyncio.sleep(_SUMMARY_S)
    total = 0
    for replica in replicas:
        async with session.get(f"{feed_of(replica)}/summary") as response:
            summary = await response.json()
            total += summary["compile"]["count"]
    return total


def _body(schema: object) -> bytes:
    return orjson.dumps(
        {
            "model": "steplane-simulator",
            "messages": [{"role": "user", "content": "Fill in the form."}],
            "stream": True,
            "max_tokens": _TOKENS,
            "response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}},
        }
    )
