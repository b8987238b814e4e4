"""Requests go on while pools, rules and replicas change under them: none fails."""

import asyncio
from pathlib import Path

from tests.integration.gateway.harness import CHAT, PLAIN, request
from tests.integration.wire.harness import until

from .harness import Site, site

CLIENTS, CHANGES = 4, 12
STRUCTURED = PLAIN[CHAT] | {"response_format": {"type": "json_object"}}
RULES = [{"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"}]


async def keep_asking(running: Site, statuses: list[int], stop: asyncio.Event) -> None:
    client = await running.client()
    at = 0
    while not stop.is_set():
        at += 1
        answer = await client.ask(request(CHAT, (PLAIN[CHAT], STRUCTURED)[at % 2]), to=b"POST")
        statuses.append(answer.status)


async def test_no_request_fails_while_everything_changes(tmp_path: Path) -> None:
    async with site(tmp_path, {"chat": ["a", "b"]}) as running:
        await running.engine("c")
        await running.engine("d")
        shapes = [
            ({"chat": ["a", "c"], "grammar": ["d"]}, RULES),
            ({"chat": ["c"], "grammar": ["d", "b"]}, RULES),
            ({"chat": ["b", "a"]}, []),
            ({"other": ["a", "b"], "grammar": ["c"]}, RULES),
        ]
        statuses: list[int] = []
        stop = asyncio.Event()
        asking = [asyncio.create_task(keep_asking(running, statuses, stop)) for _ in range(CLIENTS)]
        for change in range(CHANGES):
            pools, rules = shapes[change % len(shapes)]
            running.write(pools, rules=rules)
            await running.take_over()
            wanted = len(statuses) + CLIENTS  # some of each
            await until(lambda wanted=wanted: len(statuses) >= wanted)
        stop.set()
        await asyncio.gather(*asking)

        assert set(statuses) == {200}
        assert await running.metric("steplane_requests_total", status="2xx") == len(statuses)
