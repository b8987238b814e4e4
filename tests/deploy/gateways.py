"""Gateways as people run them: `steplane serve` as processes on fixed ports, ended by SIGTERM, started again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import aiohttp

from tests.clients.processes import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class GatewayProcess:
    """One `steplane serve`. `rest`: the YAML below listen and admin."""

    def __init__(self, folder: Path, rest: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.admin_port = free_port(), free_port()
        self.log = folder / "log"
        self.config = folder / "gateway.yaml"
        self.config.write_text(
            f"listen: 127.0.0.1:{self.port}\nadmin: {{listen: '127.0.0.1:{self.admin_port}'}}\n{rest}"
        )
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    async def start(self, *, ready: bool = True) -> "GatewayProcess":
        """Return when it is ready, or, where its replicas are nobody, when it lives."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "gateway.cli", "serve", "-c", str(self.config)),
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(PATIENCE_S):
            while not await self._answers("/readyz" if ready else "/healthz"):
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.05)
        return self

    async def end(self) -> None:
        """As a supervisor of services does: SIGTERM, and wait. Its exit code must be 0."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            code = await process.wait()
        assert code == 0, self.log.read_text()

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self.process = None

    async def _answers(self, path: str) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self.admin + path) as reply:
                return reply.status == 200
        except aiohttp.ClientConnectionError:
            return False
