"""A whole gateway between raw clients and scripted engines, in the test's own loop.

An engine answers `/health`, `/metrics` and `/abort_request` by itself and notes what it was asked; everything else is
the test's.
Messages are read by the strict reader of the wire's harness.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Gateway
from gateway.control.config import parse_config
from gateway.dataplane import DataPlane
from gateway.routing.replica import Replica
from tests.integration.wire.harness import (
    PATIENCE_S,
    Client,
    Message,
    ScriptedUpstream,
    Served,
    chunk,
    read_message,
    until,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
GENERATE = "/generate"

PLAIN: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"model": "m", "prompt": "hi"},
    RESPONSES: {"model": "m", "input": "hi"},
    MESSAGES: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    GENERATE: {"text": "hi"},
}
"""The least that each dialect asks for."""

RULES = [
    {"name": "heavy", "when": {"heavy": True}, "pool": "quarantine"},
    {"name": "raw-grammar", "when": {"grammar": ["ebnf", "regex"]}, "pool": "quarantine"},
    {"name": "structured", "when": {"grammar": "any"}, "pool": "grammar"},
    {"name": "plain", "pool": "interactive"},
]
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = chunk(b'data: {"n":1}\n\n')
LAST = b"0\r\n\r\n"

Answer = Callable[[Served, Message], Awaitable[None]]


async def ok(served: Served, message: Message) -> None:
    await served.send(ANSWER)


async def stream(served: Served, message: Message) -> None:
    await served.send(SSE_HEAD + EVENT + chunk(b"data: [DONE]\n\n") + LAST)


async def hang_up(served: Served, message: Message) -> None:
    """Close without a byte."""
    served.reset()


def saying(response: bytes) -> Answer:
    async def answer(served: Served, message: Message) -> None:
        await served.send(response)

    return answer


class Held:
    """An answer that begins with `start` and ends when the test says so; notes when the gateway has gone."""

    def __init__(self, start: bytes = b"", end: bytes = b"") -> None:
        self.start = start
        self.end = end
        self.arrived = asyncio.Event()
        self.finish = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, served: Served, message: Message) -> None:
        if self.start:
            await served.send(self.start)
        self.arrived.set()
        gone = asyncio.create_task(served.reader.read(1))
        finish = asyncio.create_task(self.finish.wait())
        try:
            await asyncio.wait((gone, finish), return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                with contextlib.suppress(ConnectionError):
                    assert gone.result() == b"", "the gateway sent more than its request"
                self.left.set()
                return
        finally:
            gone.cancel()
            finish.cancel()
            await asyncio.wait((gone, finish))
        if self.end:
            await served.send(self.end)
        else:
            served.reset()


class Engine:
    """A scripted replica. `asked` are the requests that reached it, `aborted` the ids it was told to drop."""

    def __init__(self, name: str, answer: Answer = ok) -> None:
        self.name = name
        self.answer = answer
        self.asked: list[Message] = []
        self.aborted: list[str] = []
        self._upstream = ScriptedUpstream(self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._upstream.port}"

    async def start(self) -> None:
        await self._upstream.start()

    async def stop(self) -> None:
        """Die: from now on connections are refused."""
        await self._upstream.stop()

    async def _serve(self, served: Served) -> None:
        while True:
            message = await read_message(served.reader)
            target = message.start.split(b" ")[1]
            if target == b"/health":
                await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            elif target == b"/metrics":
                await served.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            elif target == b"/abort_request":
                self.aborted.append(json.loads(message.body)["rid"])
                await served.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            else:
                self.asked.append(message)
                await self.answer(served, message)


class House:
    """A gateway, its engines by name, and whoever talks to it."""

    def __init__(self, gateway: Gateway, engines: dict[str, Engine]) -> None:
        self.gateway = gateway
        self.engines = engines
        self._clients: list[Client] = []

    async def client(self) -> Client:
        host, port = self.gateway.data_address
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
        client = Client(reader, writer)
        self._clients.append(client)
        return client

    async def ask(self, path: str, body: object = None, *lines: str, method: str = "POST") -> Message:
        """The answer to one request on a connection of its own; `body` as bytes, or as what JSON makes of it."""
        client = await self.client()
        answer = await client.ask(request(path, body, *lines, method=method), to=method.encode())
        client.close()
        return answer

    @property
    def asked(self) -> list[Message]:
        return [message for engine in self.engines.values() for message in engine.asked]

    @property
    def replicas(self) -> list[Replica]:
        return [replica for pool in self.gateway.router.pools.values() for replica in pool.replicas]

    @property
    def in_flight(self) -> int:
        return sum(replica.in_flight for replica in self.replicas)

    def available(self, name: str) -> bool:
        return next(replica.available for replica in self.replicas if replica.name == name)

    async def admin(self, path: str) -> tuple[int, str]:
        host, port = self.gateway.admin_address
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://{host}:{port}{path}") as got:
            return got.status, await got.text()

    async def post(self, path: str, body: object) -> Any:
        """What the admin port answers to a change."""
        host, port = self.gateway.admin_address
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"http://{host}:{port}{path}", json=body) as got,
        ):
            assert got.status in (200, 201), await got.text()
            return await got.json()

    async def bar(self, body: object) -> None:
        """Quarantine by hand what costs like a chat request of that body."""
        await self.quarantine((await self.post("/api/v1/explain", body))["signature"])

    async def quarantine(self, signature: str) -> None:
        """Quarantine a signature by hand."""
        await self.post("/api/v1/quarantine", {"signature": signature, "author": "sre", "reason": "test"})

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        _, text = await self.admin("/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def reaches(self, name: str, value: float, **labels: str) -> None:
        """Wait until the sum of a metric's samples is this."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await self.metric(name, **labels) == value:
                    return
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """End everything; checks that no exchange stays counted and nothing is left running."""
        for client in self._clients:
            client.close()
        await until(lambda: self.in_flight == 0)
        await self.gateway.close()
        for engine in self.engines.values():
            await engine.stop()
        for client in self._clients:
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


def request(path: str, body: object = None, *lines: str, method: str = "POST") -> bytes:
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    length = [] if body is None else [f"content-length: {len(data)}"]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", "host: a", *length, *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + data


def error_of(message: Message) -> dict[str, Any]:
    """The error of a local answer, which has the shape of OpenAI's."""
    error: dict[str, Any] = json.loads(message.body)["error"]
    assert error["message"]
    assert error["type"] == ("server_error" if message.status >= 500 else "invalid_request_error")
    assert error["code"]
    return error


Pools = Mapping[str, list[Engine]]


def three_pools(answer: Answer = ok) -> Pools:
    return {name: [Engine(f"{name}-0", answer)] for name in ("interactive", "grammar", "quarantine")}


@contextlib.asynccontextmanager
async def house(
    pools: Pools | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    rules: list[dict[str, Any]] | None = None,
    limits: Mapping[str, int] | None = None,
    timeouts: Mapping[str, float] | None = None,
    down: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
    plane: DataPlane | None = None,
) -> AsyncIterator[House]:
    """A gateway whose first pool is the default one, with every engine up.

    options: further settings of each pool.
    down:    pools whose engines die once they were seen up, which the gateway does not know yet.
    config:  further sections of the configuration.
    plane:   carries its requests.
    """
    pools = pools or three_pools()
    engines = {engine.name: engine for members in pools.values() for engine in members}
    for engine in engines.values():
        await engine.start()
    document = {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "default_pool": next(iter(pools)),
        "limits": dict(limits or {}),
        "timeouts": {"drain_s": 10, **(timeouts or {})},
        "pools": {
            name: {
                "replicas": [{"url": engine.url, "name": engine.name} for engine in members],
                # One probe at the start; what happens after it is up to the data plane.
                "health": {"interval_s": 600, "timeout_s": PATIENCE_S},
                # These engines have none, and where one would be may be the port of something else.
                "feed": "off",
                **(options or {}).get(name, {}),
            }
            for name, members in pools.items()
        },
        "rules": [rule for rule in RULES if rule["pool"] in pools] if rules is None else rules,
        # Engines are asked nothing that a test does not know of.
        "models": {"list": "pass"},
        **(config or {}),
    }
    running = House(Gateway(parse_config(json.dumps(document)), plane=plane), engines)
    async with alive(running):
        for name in down:
            for engine in pools[name]:
                await engine.stop()
        yield running


@contextlib.asynccontextmanager
async def alive(running: House) -> AsyncIterator[None]:
    """Start the gateway and wait until all is up; at the end nothing may be left over."""
    try:
        await running.gateway.start()
        async with asyncio.timeout(PATIENCE_S):
            await running.gateway.wait_all_up()
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            await running.close()
        raise
    await running.close()
