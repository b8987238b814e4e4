"""A gateway that was started from a file, which the test rewrites while it serves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from gateway.app import Gateway
from gateway.control.config import load_config
from tests.integration.gateway.harness import Answer, Engine, House, alive, ok
from tests.integration.wire.harness import PATIENCE_S, until


class Site(House):
    """The gateway, its file, and engines by name; some of these may be unknown to the gateway yet."""

    def __init__(self, gateway: Gateway, engines: dict[str, Engine], file: Path) -> None:
        super().__init__(gateway, engines)
        self.file = file

    async def engine(self, name: str, answer: Answer = ok) -> Engine:
        """Start one more engine, which nothing names yet."""
        engine = self.engines[name] = Engine(name, answer)
        await engine.start()
        return engine

    def write(self, pools: Mapping[str, Iterable[str]], **more: Any) -> None:
        """Rewrite the file: pools of engines by name, and further sections or settings of pools (as `POOL__KEY`)."""
        self.file.write_text(document(self.engines, pools, **more))

    async def ask_admin(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        host, port = self.gateway.admin_address
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, f"http://{host}:{port}{path}", json=body) as got,
        ):
            return got.status, await got.json()

    async def reload(self, query: str = "") -> dict[str, Any]:
        """Reload by the API, which must do it."""
        status, report = await self.ask_admin("POST", f"/api/v1/reload{query}")
        assert status == 200, report
        return report

    async def take_over(self) -> None:
        """What a reload does once the file was read, which takes a process most of the time."""
        await self.gateway._become(load_config(self.file))

    async def replicas_named(self, *names: str) -> None:
        """Wait until these replicas, and no others, may be picked."""
        await until(lambda: {replica.name for replica in self.replicas if replica.available} == set(names))


def document(engines: Mapping[str, Engine], pools: Mapping[str, Iterable[str]], **more: Any) -> str:
    settings: dict[str, dict[str, Any]] = {name: {} for name in pools}
    sections: dict[str, Any] = {}
    for key, value in more.items():
        pool, separator, setting = key.partition("__")
        if separator:
            settings[pool][setting] = value
        else:
            sections[key] = value
    whole = {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "default_pool": next(iter(pools)),
        "models": {"list": "pass"},
        "timeouts": {"drain_s": 10},
        "pools": {
            name: {
                "replicas": [{"url": engines[member].url, "name": member} for member in members],
                "health": {"interval_s": 600, "timeout_s": PATIENCE_S},
                "feed": "off",
                **settings[name],
            }
            for name, members in pools.items()
        },
        **sections,
    }
    return yaml.safe_dump(whole, sort_keys=False)


@contextlib.asynccontextmanager
async def site(
    folder: Path, pools: Mapping[str, Iterable[str]], *, answer: Answer = ok, **more: Any
) -> AsyncIterator[Site]:
    """A gateway from a file with these pools, every engine of which is up."""
    engines = {name: Engine(name, answer) for members in pools.values() for name in members}
    for engine in engines.values():
        await engine.start()
    file = folder / "gateway.yaml"
    file.write_text(document(engines, pools, **more))
    running = Site(Gateway(load_config(file)), engines, file)
    async with alive(running):
        yield running
