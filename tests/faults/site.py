"""Three replicas, a fault proxy before each, a gateway with retries, and clients that number their requests.

What an engine was asked is counted by that number, so that a request that was lost, or came twice, shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.wire.client import ClientConnection
from gateway.wire.connection import UpstreamConnection
from gateway.wire.exchange import Exchange
from tests.integration.gateway.harness import ANSWER, EVENT, LAST, SSE_HEAD, Engine, House, house, request
from tests.integration.wire.harness import PATIENCE_S, Message, Served, chunk, until

from .faultproxy import FaultProxy

CHAT = "/v1/chat/completions"
FILES = "/v1/files"
"""A path that the gateway knows nothing of: doing it twice may do harm."""
EVENTS = 3
_SEEDS = (1, 21, 60)
"""With these a write is lost early."""


class FaultyEngine(Engine):
    """A replica that is reached through a fault proxy. `asked_of` counts whole requests by their number."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, self._answer)
        self.way = FaultProxy(seed)
        self.asked_of: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.way.port}"

    async def start(self) -> None:
        await super().start()
        await self.way.start(self._upstream.port)

    async def stop(self) -> None:
        await self.way.stop()
        await super().stop()

    async def _answer(self, served: Served, message: Message) -> None:
        self.asked_of[(message.header(b"x-number") or b"").decode()] += 1
        if b'"stream": true' not in message.body:
            await served.send(ANSWER)
            return
        await served.send(SSE_HEAD)
        for _ in range(EVENTS):
            await served.send(EVENT)
            await served.turn()
        await served.send(chunk(b"data: [DONE]\n\n") + LAST)


@dataclass(slots=True)
class Site:
    """`answers`: what the client of each number got, None where its connection broke."""

    house: House
    engines: list[FaultyEngine]
    answers: dict[str, Message | None] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _floor: int = field(default_factory=lambda: _in_memory())

    @property
    def asked_of(self) -> Counter[str]:
        """How often each number reached an engine whole."""
        return sum((engine.asked_of for engine in self.engines), Counter())

    @property
    def faulty(self) -> int:
        return sum(engine.way.faulty for engine in self.engines)

    async def load(self, clients: int, each: int, body: Mapping[str, Any] | None, path: str = CHAT) -> list[str]:
        """So many clients at once, each asking so many times on a connection of its own; the numbers."""
        asked = await asyncio.gather(*(self._client(each, body, path) for _ in range(clients)))
        return list(itertools.chain(*asked))

    async def _client(self, count: int, body: Mapping[str, Any] | None, path: str) -> list[str]:
        numbers = []
        client = await self.house.client()
        for _ in range(count):
            number = str(next(self._numbers))
            numbers.append(number)
            try:
                self.answers[number] = await client.ask(request(path, body, f"x-number: {number}"))
            except (asyncio.IncompleteReadError, ConnectionError):
                self.answers[number] = None
                client.close()
                client = await self.house.client()
        client.close()
        return numbers

    def statuses(self, numbers: list[str]) -> Counter[int]:
        """How many of these got which status; 0 where the connection broke."""
        return Counter(answer.status if (answer := self.answers[number]) else 0 for number in numbers)

    async def at_rest(self) -> None:
        """Wait until nothing of what was asked is left in the gateway but its idle connections."""
        await until(lambda: self.house.in_flight == 0)

        async with asyncio.timeout(PATIENCE_S):
            while _in_memory() > self._floor:  # noqa: ASYNC110 (nobody sets an event)
                await asyncio.sleep(0.15)


def _in_memory() -> int:
    """Exchanges and connections that something holds on to."""
    gc.collect()
    return sum(isinstance(each, Exchange | ClientConnection | UpstreamConnection) for each in gc.get_objects())


@contextlib.asynccontextmanager
async def site(*, first_byte_s: float = 20.0, retry: Mapping[str, Any] | None = None) -> AsyncIterator[Site]:
    """A gateway in front of three replicas, which it probes but once; it tries thrice, without a budget."""
    engines = [FaultyEngine(f"r{at}", seed) for at, seed in enumerate(_SEEDS)]
    options = {
        "retry": {"attempts": 3, "budget": {"ratio": 1, "min_per_s": 1000}, **(retry or {})},
        "ejection": {"consecutive_faults": 1000, "error_rate": 1.0, "silence_s": 600},
    }
    timeouts = {"first_byte_s": first_byte_s, "connect_s": 2.0, "upstream_idle_s": 0.2}
    async with house({"all": list(engines)}, options={"all": options}, timeouts=timeouts, rules=[]) as running:
        yield Site(running, engines)
