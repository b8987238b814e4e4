"""Measures what gateways, and the Redis that they share, spend on replicas, requests and chunks; prints a table.

Three gateways, twelve simulated replicas with their step feeds, one Redis, one load generator. First nobody asks
anything: what is spent then is for health checks, step feeds and shared state. Then clients stream, each as fast as it
is answered. CPU time is what counts, for on a small machine all of them share the same cores.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from loadtest.breaker.site import Gateway, SiteError, gateway, reads_feeds, redis_server, simulator

_POOLS = ("interactive", "grammar", "quarantine")
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": "string", "maxLength": 8} for name in ("name", "street", "city")},
    "required": ["name", "street", "city"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Spent:
    """What processes have spent so far: CPU seconds of all gateways, CPU seconds and commands of Redis."""

    at_s: float
    gateways_s: float
    redis_s: float
    commands: float


@dataclass(slots=True)
class Asked:
    """What clients have got."""

    requests: int = 0
    chunks: int = 0
    failed: int = 0


def main() -> None:
    """Reads the arguments and runs."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.sizing", description=__doc__)
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=12, help="of all pools together")
    parser.add_argument("--clients", type=int, default=48, help="0: nobody asks anything")
    parser.add_argument("--seconds", type=float, default=20, help="of each of the two parts")
    parser.add_argument("--feed", choices=("auto", "off"), default="auto", help="whether gateways read step feeds")
    arguments = parser.parse_args()
    try:
        asyncio.run(_run(arguments))
    except SiteError as error:
        sys.exit(str(error))


async def _run(arguments: argparse.Namespace) -> None:
    gateways, replicas, seconds = arguments.gateways, arguments.replicas, arguments.seconds
    reads = arguments.feed == "auto"
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steplane-sizing-")))
        redis = await stack.enter_async_context(redis_server(folder))
        # Forward passes of 20 ms, so that a dozen engines fit on a small machine.
        engines = [
            await stack.enter_async_context(
                simulator(f"r{number}", folder, "--forward-base-us", "20000", "--reply-tokens", "32:64")
            )
            for number in range(replicas)
        ]
        running = [
            await stack.enter_async_context(
                gateway(f"g{number}", _configuration(engines, redis, arguments.feed), folder)
            )
            for number in range(gateways)
        ]
        for each in running:
            await reads_feeds(each, replicas if reads else 0)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        before = await _spent(session, running, redis)
        await asyncio.sleep(seconds)
        quiet = await _spent(session, running, redis)
        asked = Asked()
        over = time.monotonic() + seconds
        await asyncio.gather(
            *(_client(session, running[each % gateways], each, over, asked) for each in range(arguments.clients))
        )
        loaded = await _spent(session, running, redis)
        memory = [await _metric(session, each, "process_resident_memory_bytes") for each in running]
    _print(gateways, replicas, before, quiet, loaded, asked, memory)


def _configuration(engines: list[str], redis: str, feed: str) -> str:
    """The pools, with the engines dealt out to them."""
    lines = [f'state: {{redis: {{url: "{redis}"}}}}', "default_pool: interactive"]
    lines += ["hookcost: {grammar_backend: llguidance}", "pools:"]
    for number, pool in enumerate(_POOLS):
        members = ", ".join(engines[number :: len(_POOLS)])
        budget = "" if pool == "quarantine" else ", step_budget_us: 4000"
        lines.append(f"  {pool}: {{replicas: [{members}], feed: '{feed}'{budget}}}")
    lines += ["rules:", "  - {name: structured, when: {grammar: any}, pool: grammar}"]
    return "\n".join(lines)


async def _client(session: aiohttp.ClientSession, gateway: Gateway, number: int, over: float, asked: Asked) -> None:
    """Streams one after the other; every third client asks for structured output."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": f"client {number}"}], "stream": True}
    if number % 3 == 0:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "address", "schema": _SCHEMA}}
    while time.monotonic() < over:
        chunks = 0
        async with session.post(f"{gateway.url}/v1/chat/completions", json=body) as reply:
            async for line in reply.content:
                chunks += line.startswith(b"data:")
        asked.requests += 1
        asked.chunks += chunks
        asked.failed += reply.status != 200


async def _spent(session: aiohttp.ClientSession, gateways: list[Gateway], url: str) -> Spent:
    from redis.asyncio import Redis

    async with Redis.from_url(url) as client:
        info = await client.info()
    cpu = [await _metric(session, each, "process_cpu_seconds_total") for each in gateways]
    return Spent(
        at_s=time.monotonic(),
        gateways_s=sum(cpu, 0.0),
        redis_s=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
        commands=float(info["total_commands_processed"]),
    )


async def _metric(session: aiohttp.ClientSession, gateway: Gateway, name: str) -> float:
    async with session.get(f"{gateway.admin}/metrics") as reply:
        text = await reply.text()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                return float(sample.value)
    raise SiteError(f"{gateway.admin}/metrics has no {name}")


def _print(
    gateways: int, replicas: int, before: Spent, quiet: Spent, loaded: Spent, asked: Asked, memory: list[float]
) -> None:
    quiet_s, loaded_s = quiet.at_s - before.at_s, loaded.at_s - quiet.at_s
    idle = (quiet.gateways_s - before.gateways_s) / quiet_s
    busy = loaded.gateways_s - quiet.gateways_s - idle * loaded_s
    rows = [
        ("a gateway without requests, % of a core", f"{100 * idle / gateways:.2f}"),
        ("a gateway, MiB", f"{max(memory) / 2**20:.0f}"),
        ("Redis without requests, commands a second", f"{(quiet.commands - before.commands) / quiet_s:.1f}"),
        ("Redis without requests, % of a core", f"{100 * (quiet.redis_s - before.redis_s) / quiet_s:.2f}"),
    ]
    if asked.requests:
        rows += [
            ("requests, of them failed", f"{asked.requests}, {asked.failed}"),
            ("chunks", f"{asked.chunks}"),
            ("requests a second", f"{asked.requests / loaded_s:.1f}"),
            ("a gateway, µs for each request with its chunks", f"{1e6 * busy / asked.requests:.0f}"),
            ("the same for each chunk", f"{1e6 * busy / max(asked.chunks, 1):.1f}"),
            ("Redis under load, commands a second", f"{(loaded.commands - quiet.commands) / loaded_s:.1f}"),
            ("Redis under load, % of a core", f"{100 * (loaded.redis_s - quiet.redis_s) / loaded_s:.2f}"),
        ]
    print(f"{gateways} gateways, {replicas} replicas\n")
    print("| | |\n|---|---|")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
