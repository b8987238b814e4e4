"""How much an engine has to do, by its own account: SGLang's `/v1/loads` (`/get_load` in older ones), vLLM's metrics.

Asks once and reads; when to ask, and what an answer is good for, is whoever asks's to say. What can't be read is None:
nothing here fails.
"""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from gateway.feed.scrape import read_metrics
from gateway.feed.session import ReplicaSession, read_at_most

_MOST_BYTES = 4 << 20
_CACHE = re.compile(rb"^vllm:(?:kv|gpu)_cache_usage_perc(?:\{[^\n]*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Requests that run and wait at one engine, whoever sent them; share of its KV cache in use, None: not said."""

    running: int
    waiting: int
    cache_usage: float | None = None


async def ask_load(session: ReplicaSession, url: str, engine: str, timeout_s: float) -> EngineLoad | None:
    """The load of the engine at `url` (without a trailing slash); `engine` is `sglang`, `vllm` or `other`."""
    try:
        async with asyncio.timeout(timeout_s):
            if engine == "vllm":
                text = await _body(session, f"{url}/metrics")
                return None if text is None else read_vllm(text)
            if engine == "sglang":
                body = await _body(session, f"{url}/v1/loads?include=core")
                if body is None:
                    body = await _body(session, f"{url}/get_load")
                return None if body is None else read_sglang(body)
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    return None


def read_vllm(text: bytes) -> EngineLoad | None:
    """The load in vLLM's metrics."""
    reading = read_metrics(text, 0.0)
    if reading is None or "running" not in reading.gauges:
        return None
    shares = [float(match) for match in _CACHE.findall(text)]
    return EngineLoad(int(reading.gauges["running"]), int(reading.gauges.get("waiting", 0)), _mean(shares))


def read_sglang(body: bytes) -> EngineLoad | None:
    """The load in an answer of `/v1/loads`, or `/get_load`, added up over data-parallel ranks."""
    document = orjson.loads(body)
    ranks = document.get("loads") if isinstance(document, dict) else document
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, dict) for rank in ranks):
        return None
    waiting = sum(_number(rank, "num_waiting_reqs") for rank in ranks)
    if "num_running_reqs" in ranks[0]:
        running = sum(_number(rank, "num_running_reqs") for rank in ranks)
    else:  # /get_load counts all requests together
        running = sum(_number(rank, "num_reqs") for rank in ranks) - waiting
    usage = [_number(rank, "token_usage") for rank in ranks if "token_usage" in rank]
    return EngineLoad(int(running), int(waiting), _mean(usage))


def _number(rank: dict[str, Any], key: str) -> float:
    value = rank.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is no number: {value!r}")
    return float(value)


def _mean(shares: Iterable[float]) -> float | None:
    known = list(shares)
    return sum(known) / len(known) if known else None


async def _body(session: ReplicaSession, url: str) -> bytes | None:
    async with session.get(url, allow_redirects=False) as response:
        return await read_at_most(response, _MOST_BYTES) if response.status == 200 else None
