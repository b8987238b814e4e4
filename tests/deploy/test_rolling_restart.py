"""Both gateways behind HAProxy are replaced, one after the other, while clients go on: none of them notices."""

import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.clients.processes import free_port
from tests.deploy.gateways import PATIENCE_S, REPOSITORY, GatewayProcess
from tests.integration.workers.harness import Replica

HAPROXY = shutil.which("haproxy", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin")))
ROUNDS = int(os.environ.get("STEPLANE_TEST_RENEWALS", "1"))
CLIENTS = 16
STREAM_S = 1.0

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")


class Balancer:
    """HAProxy with the configuration of deploy/haproxy, and a socket to ask it."""

    def __init__(self, folder: Path, gateways: list[GatewayProcess]) -> None:
        self.port = free_port()
        # The path of a socket must be short, and those of tests are not.
        self.folder = tempfile.TemporaryDirectory(prefix="haproxy-")
        self.socket = Path(self.folder.name) / "asked"
        asked = folder / "asked.cfg"
        asked.write_text(f"global\n  stats socket {self.socket}\n")
        assert HAPROXY is not None
        self.command = [HAPROXY, "-db", "-f", str(REPOSITORY / "deploy/haproxy/haproxy.cfg"), "-f", str(asked)]
        self.environment = os.environ | {"BIND": f"127.0.0.1:{self.port}"}
        for number, gateway in enumerate(gateways, 1):
            self.environment |= {
                f"GATEWAY_{number}": f"127.0.0.1:{gateway.port}",
                f"ADMIN_{number}": "127.0.0.1",
                f"ADMIN_PORT_{number}": str(gateway.admin_port),
            }

    async def __aenter__(self) -> "Balancer":
        self.process = await asyncio.create_subprocess_exec(*self.command, env=self.environment)
        deadline = time.monotonic() + PATIENCE_S
        while not self.socket.exists():
            assert self.process.returncode is None
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self.folder.cleanup()

    async def sends_to(self, number: int) -> None:
        """Return when it takes a gateway for up."""
        deadline = time.monotonic() + PATIENCE_S
        while f"gateway-{number} UP" not in (states := await self._states()):
            assert time.monotonic() < deadline, states
            await asyncio.sleep(0.05)

    async def _states(self) -> str:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        writer.write(b"show stat\n")
        answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        rows = [line.split(",") for line in answer.splitlines() if line.startswith("gateways,gateway-")]
        return "\n".join(f"{row[1]} {row[17]}" for row in rows)


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    async with Replica() as replica:
        yield replica


async def ask(url: str, session: aiohttp.ClientSession, seen: Counter[str]) -> None:
    """One request; what came of it is counted, and whoever got less than all of it is told apart."""
    body = {"messages": [{"role": "user", "content": "hi"}]}
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as reply:
            text = await reply.text()
            whole = text == '{"ok":true}' or text.endswith("data: last\n\n")
            seen[f"{reply.status}{'' if whole else ' cut'}"] += 1
    except (aiohttp.ClientError, TimeoutError) as error:
        seen[repr(error)] += 1


async def client(url: str, keep: bool, over: asyncio.Event, seen: Counter[str]) -> None:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    connector = aiohttp.TCPConnector(force_close=not keep)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        while not over.is_set():
            await ask(url, session, seen)


async def streams_come_and_go(replica: Replica, over: asyncio.Event) -> None:
    """So that at any moment some streams run, and all of them end."""
    while not over.is_set():
        replica.may_end.clear()
        await asyncio.sleep(STREAM_S)
        replica.may_end.set()
        await asyncio.sleep(STREAM_S)


async def test_two_gateways_are_replaced_and_no_request_is_lost(tmp_path: Path, replica: Replica) -> None:
    rest = f"""
default_pool: only
timeouts: {{drain_delay_s: 2, drain_s: 30}}
pools:
  only:
    replicas: [{{url: "http://127.0.0.1:{replica.port}", name: r1}}]
    feed: off
"""
    gateways = [GatewayProcess(tmp_path / str(number), rest) for number in (1, 2)]
    over = asyncio.Event()
    seen: Counter[str] = Counter()
    tasks: list[asyncio.Task[None]] = []
    try:
        for gateway in gateways:
            await gateway.start()
        async with Balancer(tmp_path, gateways) as balancer:
            for number in (1, 2):
                await balancer.sends_to(number)
            url = f"http://127.0.0.1:{balancer.port}"
            tasks = [asyncio.create_task(client(url, number % 2 == 0, over, seen)) for number in range(CLIENTS)]
            tasks.append(asyncio.create_task(streams_come_and_go(replica, over)))
            for _ in range(ROUNDS):
                for number, gateway in enumerate(gateways, 1):
                    before = seen.total()
                    await gateway.end()
                    await gateway.start()
                    await balancer.sends_to(number)
                    assert seen.total() > before, "nobody asked meanwhile"
            over.set()
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        for gateway in gateways:
            await gateway.kill()
    assert set(seen) == {"200"}, seen
    assert seen.total() > 10 * CLIENTS
