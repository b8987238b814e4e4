"""The primary of Redis dies and Sentinel puts the replica in its place: what was quarantined stays so, everywhere."""

import asyncio
from pathlib import Path

import aiohttp

from tests.deploy.gateways import PATIENCE_S, GatewayProcess
from tests.integration.state.test_topologies import sentinel

BEFORE = [f"s1-{number:016x}" for number in range(40)]
MEANWHILE = [f"s1-{number:016x}" for number in range(100, 140)]


async def quarantine(gateway: GatewayProcess, signature: str) -> None:
    body = {"signature": signature, "reason": "over budget", "author": "test", "wait_s": 3600}
    url = f"{gateway.admin}/api/v1/quarantine"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as reply:
        assert reply.status in (200, 201), await reply.text()


async def quarantined(gateway: GatewayProcess) -> set[str]:
    url = f"{gateway.admin}/api/v1/quarantine?limit=1000"
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        document = await reply.json()
    return {entry["key"] for entry in document["quarantined"]}


async def knows(gateway: GatewayProcess, signatures: list[str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while missing := set(signatures) - await quarantined(gateway):
            assert gateway.process is not None
            assert gateway.process.returncode is None, (missing, gateway.log.read_text())
            await asyncio.sleep(0.05)


async def test_no_tripped_signature_is_lost_when_redis_fails_over(tmp_path: Path) -> None:
    with sentinel(tmp_path) as (url, primary, replica):
        rest = f"""
default_pool: only
state: {{redis: {{url: "{url}"}}}}
pools:
  only: {{replicas: ["http://127.0.0.1:9"], feed: off, step_budget_us: 1000}}
  quarantine: {{replicas: ["http://127.0.0.1:10"], feed: off}}
"""
        here, there, newcomer = (GatewayProcess(tmp_path / str(number), rest) for number in range(3))
        try:
            for gateway in (here, there):
                await gateway.start(ready=False)
            for signature in BEFORE:
                await quarantine(here, signature)
            await knows(there, BEFORE)

            primary.kill()
            # Nobody waits for a new primary: both gateways go on by what they know, and learn more.
            for number, signature in enumerate(MEANWHILE):
                await quarantine((here, there)[number % 2], signature)
                assert signature in await quarantined((here, there)[number % 2])
            await knows(here, BEFORE + MEANWHILE)
            await knows(there, BEFORE + MEANWHILE)
            assert replica.call("ROLE")[0] == b"master"

            # One that was never told otherwise reads all of it from the new primary.
            await newcomer.start(ready=False)
            await knows(newcomer, BEFORE + MEANWHILE)
        finally:
            for gateway in (here, there, newcomer):
                await gateway.kill()
