"""A whole gateway before scripted engines whose step feeds are scripted, too, so that a test says what steps cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from gateway.app import Gateway
from gateway.breaker.ledger import Transition
from gateway.breaker.record import BreakerRecord, Kind, State
from gateway.breaker.trust import Trust
from gateway.control.classifier import build_classifier
from gateway.control.config import parse_config
from gateway.feed.sources import Source, SourceStatus
from gateway.hookcost import Classification
from gateway.hookcost.classify import take_turn
from gateway.oversight import Oversight
from tests.integration.gateway.harness import CHAT, PLAIN, Answer, Engine, House, ok, request
from tests.integration.loop.feed import Feed
from tests.integration.wire.harness import PATIENCE_S, Client, Message, until

BUDGET_US, HARD_US, COMPILE_MS = 1000.0, 20_000.0, 500.0
LIMITS = {"step_budget_us": BUDGET_US, "hard_limit_us": HARD_US, "compile_limit_ms": COMPILE_MS}

COSTLY = {"stop": ["@@"]}
"""Makes a chat request one with hooks, with a signature of its own. So do the others."""
KINDS: Sequence[Mapping[str, Any]] = (
    COSTLY,
    {"stop": ["@@", "##"]},
    {"n": 4, "stop": ["@@"]},
    {"logprobs": True, "top_logprobs": 5},
    {"logit_bias": {"1": 1}},
    {"frequency_penalty": 1},
)


_JSON = "content-type: application/json"


class Replica(Engine):
    """A scripted engine with a scripted feed; `feed` None: it has none."""

    def __init__(self, name: str, answer: Answer = ok, *, feed: bool = True) -> None:
        super().__init__(name, answer)
        self.feed = Feed() if feed else None

    @property
    def says(self) -> Feed:
        assert self.feed is not None
        return self.feed

    async def start(self) -> None:
        await super().start()
        if self.feed is not None:
            await self.feed.start()

    async def stop(self) -> None:
        await super().stop()
        if self.feed is not None:
            await self.feed.stop()

    @property
    def rids(self) -> list[str]:
        """The ids under which it knows the requests that reached it."""
        return [rid_of(message) for message in self.asked]

    async def rid(self, number: int = -1, count: int = 1) -> str:
        """The id of a request once `count` have come."""
        await until(lambda: len(self.asked) >= count)
        return self.rids[number]


Street = Mapping[str, Sequence[Replica]]


def street(answer: Answer = ok, *, interactive: int = 1, feed: bool = True, quarantine: bool = True) -> Street:
    """One pool for everything, and one for quarantine."""
    pools = {"interactive": [Replica(f"interactive-{number}", answer, feed=feed) for number in range(interactive)]}
    if quarantine:
        pools["quarantine"] = [Replica("quarantine-0", feed=feed)]
    return pools


class Stage(House):
    """A gateway, the replicas behind it, and what is known of their requests."""

    def __init__(self, gateway: Gateway, pools: Street) -> None:
        engines: dict[str, Engine] = {each.name: each for members in pools.values() for each in members}
        super().__init__(gateway, engines)
        self.pools = pools
        self._classifier = build_classifier(gateway.config)

    @property
    def interactive(self) -> Replica:
        return self.pools["interactive"][0]

    @property
    def quarantine(self) -> Replica:
        return self.pools["quarantine"][0]

    @property
    def oversight(self) -> Oversight:
        assert self.gateway._oversight is not None
        return self.gateway._oversight

    @property
    def trust(self) -> Trust:
        return self.oversight.trust

    @property
    def sources(self) -> dict[str, SourceStatus]:
        assert self.gateway._fleet is not None
        return {status.replica: status for status in self.gateway._fleet._senses.status()}

    def classified(self, path: str = CHAT, **extra: Any) -> Classification:
        """What the gateway makes of a request."""
        found = self._classifier.begin(path, json.dumps(PLAIN[path] | extra).encode())
        while not isinstance(found, Classification):
            done = take_turn(found)
            if done is not None:
                return done
        return found

    def signature(self, path: str = CHAT, **extra: Any) -> str:
        return self.classified(path, **extra).signature

    def record(self, **extra: Any) -> BreakerRecord | None:
        """What the breaker has on chat requests of this kind."""
        return self.trust.record(Kind.signature, self.signature(**extra))

    def state(self, **extra: Any) -> State:
        record = self.record(**extra)
        return State.closed if record is None else record.state

    @property
    def barred(self) -> set[str]:
        """All signatures and tenants that are not closed."""
        return {record.key for record in self.trust.snapshot()}

    async def chat(self, *lines: str, **extra: Any) -> Message:
        return await self.ask(CHAT, PLAIN[CHAT] | extra, _JSON, *lines)

    async def begin(self, path: str = CHAT, *lines: str, **extra: Any) -> Client:
        """Send a request; the answer is the test's to read."""
        client = await self.client()
        await client.send(request(path, PLAIN[path] | extra, _JSON, *lines))
        return client

    async def trip(self, *lines: str, us: float = HARD_US * 2, **extra: Any) -> BreakerRecord:
        """Run a request of this kind that takes too long in one step, and wait until its signature is barred."""
        replica = self.interactive
        await self.chat(*lines, **extra)
        replica.says.steps(replica.rids[-1], us)
        await until(lambda: self.state(**extra) is not State.closed)
        record = self.record(**extra)
        assert record is not None
        return record

    def opened(self) -> list[BreakerRecord]:
        """Grows by each record that opens from now on, however soon the next state follows."""
        opened: list[BreakerRecord] = []
        notify = self.trust._notify

        def noting(transition: Transition) -> None:
            if transition.record.state is State.open:
                opened.append(transition.record)
            notify(transition)

        self.trust._notify = noting
        return opened

    async def heard(self, *replicas: Replica) -> None:
        """Wait until all that these feeds have said so far was taken."""
        for replica in replicas or self._sensed():
            before = self.sources[replica.name].records
            replica.says.sums(1, 4000.0, 0.0)
            await until(lambda name=replica.name, count=before: self.sources[name].records > count)

    def _sensed(self) -> list[Replica]:
        return [each for members in self.pools.values() for each in members if each.feed is not None]

    async def close(self) -> None:
        """End the gateway; checks that nothing stays booked and no exchange stays counted."""
        for client in self._clients:
            client.close()
        await until(lambda: self.in_flight == 0)
        for pool in self.gateway.router.pools.values():
            assert pool.waiting == 0
            for replica in pool.replicas:
                assert (replica.booked, replica.booked_us, replica.structured) == (0, 0.0, 0), replica
        await self.gateway.close()
        for client in self._clients:
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()


def rid_of(message: Message) -> str:
    """The id that the gateway gave a request, as the engine reads it."""
    fields = json.loads(message.body)
    return str(fields.get("rid") or fields.get("request_id"))


def config_of(
    pools: Street,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Sequence[Mapping[str, Any]] = (),
    timeouts: Mapping[str, float] | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """A configuration for these pools, of which the first is the default; all but quarantine have limits."""
    return {
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "default_pool": next(iter(pools)),
        "models": {"list": "pass"},
        "timeouts": {"drain_s": 10, **(timeouts or {})},
        "pools": {
            name: {
                "replicas": [_replica(each) for each in members],
                "health": {"interval_s": 600, "timeout_s": PATIENCE_S},
                **({} if name == "quarantine" else LIMITS),
                **(options or {}).get(name, {}),
            }
            for name, members in pools.items()
        },
        "rules": list(rules),
        **parts,
    }


def _replica(replica: Replica) -> dict[str, str]:
    feed = {} if replica.feed is None else {"feed": replica.feed.url}
    return {"url": replica.url, "name": replica.name, **feed}


@contextlib.asynccontextmanager
async def serving(pools: Street) -> AsyncIterator[None]:
    """These replicas are up; checks that nothing of the test is left running when they have gone."""
    members = [each for replicas in pools.values() for each in replicas]
    for each in members:
        await each.start()
    try:
        yield
    except BaseException:
        # What a failed test left half done must not hide why it failed.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await asyncio.gather(*left, return_exceptions=True)
                for each in members:
                    await each.stop()
                for _ in range(20):
                    await asyncio.sleep(0.001)  # transports close in turns of their own
        raise
    for each in members:
        await each.stop()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@contextlib.asynccontextmanager
async def gateway(pools: Street, **config: Any) -> AsyncIterator[Stage]:
    """A gateway before replicas that serve; every one is up, and every feed that speaks is heard."""
    running = Stage(Gateway(parse_config(json.dumps(config_of(pools, **config)))), pools)
    try:
        await running.gateway.start()
        async with asyncio.timeout(PATIENCE_S):
            await running.gateway.wait_all_up()
        speaking = [each.name for each in running._sensed() if not (each.says.silent or each.says.garbage)]
        await until(lambda: all(running.sources[name].source is Source.steps for name in speaking))
        yield running
    except BaseException:
        for client in running._clients:
            client.writer.transport.abort()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(5):
                await running.gateway.close()
        raise
    await running.close()


@contextlib.asynccontextmanager
async def stage(pools: Street | None = None, **config: Any) -> AsyncIterator[Stage]:
    """Both."""
    pools = pools if pools is not None else street()
    async with serving(pools), gateway(pools, **config) as running:
        yield running


def pool_of(message: Message) -> str | None:
    """The pool that an answer says it is from."""
    pool = message.header(b"x-steplane-pool")
    return None if pool is None else pool.decode()


async def at_once(ask: Callable[[], Awaitable[Message]]) -> Message:
    """An answer that waited for nobody: who does not answer holds up each of five, a busy machine only some."""
    quickest_s = math.inf
    for _ in range(5):
        began = time.monotonic()
        answer = await ask()
        quickest_s = min(quickest_s, time.monotonic() - began)
        if quickest_s < 0.5:
            return answer
    raise AssertionError(f"the quickest of five answers took {quickest_s:.2f} s")


async def stays(condition: Callable[[], bool], turns: int = 20) -> None:
    """Check a condition for so many turns of the loop and a little longer than two of the once-a-second works."""
    for _ in range(turns):
        assert condition()
        await asyncio.sleep(0.003)
    assert condition()
