"""A supervisor as a process with its workers, a replica in front of which they stand, and clients that put on load."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

REPOSITORY = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0
BODY = b'{"messages":[{"role":"user","content":"hi"}]}'
ASK = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'
HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        await asyncio.sleep(0.01)


class Replica:
    """Healthy. Answers at once, and where a test has cleared `may_end`, with a stream that ends when it is set."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.streams = 0
        """That run now."""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Replica":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                if not head.startswith(b"POST /v1"):
                    writer.write(HEALTHY)
                elif self.may_end.is_set():
                    writer.write(ANSWER)
                else:
                    self.streams += 1
                    writer.write(STREAM + b"d\r\ndata: first\n\n\r\n")
                    await self.may_end.wait()
                    self.streams -= 1
                    writer.write(b"c\r\ndata: last\n\n\r\n0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._connections.discard(task)
            writer.close()


class Serving:
    """A running `steplane serve` with two workers. What it logs is in `log`."""

    def __init__(self, folder: Path, replica: Replica, more: str = "") -> None:
        """`more`: further YAML."""
        self.replica = replica
        self.config = folder / "f.yaml"
        self.config.write_text(f"""
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: 2
default_pool: only
pools:
  only:
    replicas: [{{url: "http://127.0.0.1:{replica.port}", name: r1}}]
    feed: off
    step_budget_us: 1000
{more}
""")
        self.log: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        """On standard error, that are no entries of a log."""
        self.data = self.admin = ""

    async def start(self, environment: dict[str, str] | None = None) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gateway.cli", "serve", "-c", str(self.config)),
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | (environment or {}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read_log())
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            words = (await self.process.stdout.readline()).decode().replace(",", "").replace(";", "").split()
        assert words, self.log
        self.data, self.admin = words[3], words[6]
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S))

    @property
    def port(self) -> int:
        return int(self.data.rpartition(":")[2])

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.admin + path) as reply:
            return reply.status, await reply.json()

    async def post(self, path: str, body: dict[str, object] | None = None) -> tuple[int, Any]:
        async with self.session.post(self.admin + path, json=body or {}) as reply:
            return reply.status, await reply.json()

    async def workers(self) -> list[dict[str, Any]]:
        _, document = await self.get("/api/v1/workers")
        found: list[dict[str, Any]] = document["workers"]
        return found

    async def settled(self, generation: int, count: int = 2) -> list[dict[str, Any]]:
        """The workers, once there are just so many of a generation and all of them take clients."""
        workers: list[dict[str, Any]] = []
        deadline = time.monotonic() + PATIENCE_S
        while [(each["generation"], each["state"]) for each in workers] != [(generation, "serving")] * count:
            assert time.monotonic() < deadline, workers
            await asyncio.sleep(0.02)
            workers = await self.workers()
        return workers

    async def pids(self) -> list[int]:
        return [worker["pid"] for worker in await self.workers()]

    async def metric(self, name: str) -> float:
        async with self.session.get(self.admin + "/metrics") as reply:
            families = text_string_to_metric_families(await reply.text())
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.log if entry["event"] == event]

    async def end(self) -> int:
        """End it, if it still runs; its exit code."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
        return await self.over()

    async def over(self) -> int:
        """Its exit code, once it has ended by itself."""
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
            await self._reading
        await self.session.close()
        # Its pipes are closed when the last that has inherited them is gone, in a turn of the loop of their own.
        transport: Any = self.process._transport  # type: ignore[attr-defined]
        await until(lambda: transport._proc is None, "its pipes closed")
        return code

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.other_lines.append(line.decode())


async def read_event(response: aiohttp.ClientResponse) -> tuple[str, dict[str, Any]]:
    """The next of the server-sent events: its name and its data."""
    name = ""
    async for line in response.content:
        if line.startswith(b"event: "):
            name = line.removeprefix(b"event: ").strip().decode()
        elif line.startswith(b"data: "):
            return name, json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream has ended")


class Load:
    """Clients that ask one request after the other: some on one connection, some on a new one each time, some seldom.

    outcomes: by status, or by what went wrong.
    """

    clients = 12

    def __init__(self, port: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._port = port
        self._stopped = asyncio.Event()
        self._clients: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        for number in range(self.clients):
            self._clients.append(
                asyncio.create_task(self._ask(keeps=number % 2 == 0, pause_s=(0.005, 0.2)[number % 3 == 0]))
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped.set()
        await asyncio.gather(*self._clients)

    @property
    def answered(self) -> int:
        return self.outcomes["200"]

    async def more(self, requests: int = 50) -> None:
        """Return when so many more were answered."""
        wanted = self.answered + requests
        await until(lambda: self.answered >= wanted, f"{requests} more answers: {self.outcomes}")

    async def _ask(self, *, keeps: bool, pause_s: float) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(PATIENCE_S):
                    if connection is None:
                        connection = await asyncio.open_connection("127.0.0.1", self._port)
                    reader, writer = connection
                    writer.write(ASK % len(BODY) + BODY)
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                self.outcomes[head[9:12].decode()] += 1
                if keeps and b"connection: close" not in head:
                    await asyncio.sleep(pause_s)
                    continue
            except (OSError, EOFError, TimeoutError) as error:
                self.outcomes[repr(error)[:60]] += 1
            if connection is not None:
                connection[1].close()
                connection = None
            await asyncio.sleep(pause_s)
        if connection is not None:
            connection[1].close()
            with contextlib.suppress(OSError):
                await connection[1].wait_closed()


@contextlib.asynccontextmanager
async def open_stream(port: int) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which a request was sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK % len(BODY) + BODY)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
