"""What holds whatever happens in whatever order: drawn by hypothesis, played on a real Redis with two gateways."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.state.harness import Gateway, RedisServer
from tests.waiting import until

KEYS = ("s", "t")
LEASE_S = 0.1

STEPS = st.one_of(
    st.tuples(st.just("force"), st.integers(0, 1), st.sampled_from(KEYS)),
    st.tuples(st.just("advance"), st.integers(0, 1), st.sampled_from(KEYS)),
    st.tuples(st.just("lease"), st.integers(0, 1), st.just("probe")),
    st.tuples(st.sampled_from(["flush", "restart", "pause", "wait", "agree"]), st.just(0), st.just("")),
)

_prefixes = count()


@dataclass
class Made:
    """A change that was made. `shown`: the version that the gateway showed when it was made."""

    gateway: int
    key: str
    shown: int
    heard: int
    """Reports that the gateway had got by then."""


@dataclass
class Play:
    """Two gateways and what was done with them."""

    server: RedisServer
    gateways: tuple[Gateway, Gateway]
    forces: dict[bytes, Made] = field(default_factory=dict)
    advances: dict[bytes, Made] = field(default_factory=dict)
    leased_until: float = 0.0

    async def act(self, action: str, number: int, key: str) -> None:
        gateway = self.gateways[number]
        value = b"%d" % (len(self.forces) + len(self.advances))
        made = Made(number, key, gateway.version(key), len(gateway.heard))
        match action:
            case "force":
                self.forces[value] = made
                gateway.force(key, value)
            case "advance":
                self.advances[value] = made
                gateway.advance(key, made.shown, value)
            case "lease":
                asked = time.monotonic()
                if await gateway.store.lease(key, LEASE_S):
                    assert time.monotonic() >= self.leased_until, "a second holder"
                    self.leased_until = asked + LEASE_S
            case "flush":
                # Unless it is paused, or on its way up.
                await asyncio.to_thread(self.server.call, "FLUSHALL")
            case "restart":
                self.server.kill()
                await asyncio.to_thread(self.server.start)
            case "pause":
                self.server.pause()
                await asyncio.sleep(0.08)
                self.server.resume()
            case "wait":
                await asyncio.sleep(0.01)
            case "agree":
                await self.agree()

    async def agree(self) -> None:
        here, there = self.gateways

        def agreed() -> bool:
            return (
                here.store.records("signature") == there.store.records("signature")
                and not here.store.status().pending
                and not there.store.status().pending
            )

        await until(agreed, "agreed")

    def check(self) -> None:
        for gateway in self.gateways:
            for key in KEYS:
                versions = [version for heard, version, _ in gateway.heard if heard == key]
                assert versions == sorted(set(versions)), "versions only grow"
        for key in KEYS:
            forces = {value: made for value, made in self.forces.items() if made.key == key}
            last = self.gateways[0].value(key)
            if last not in self.advances:
                assert last in forces or not forces, "a force left a value"
                continue
            advance = self.advances[last]
            # An advance may stand only upon all forces: each was known to its author, or came before what was.
            known = {value for heard, _, value in self.gateways[advance.gateway].heard[: advance.heard] if heard == key}
            for value, force in forces.items():
                reports = self.gateways[force.gateway].heard
                version = max(version for heard, version, told in reports if heard == key and told == value)
                assert value in known or version <= advance.shown, f"{value!r} is forgotten"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(Path(tmp_path_factory.mktemp("redis"))).start()
    yield server
    server.kill()


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=5, max_size=25))
def test_no_force_is_forgotten_versions_only_grow_and_a_lease_has_one_holder(
    shared_server: RedisServer, steps: list[tuple[str, int, str]]
) -> None:
    async def play_all() -> None:
        prefix = f"play{next(_prefixes)}"
        options = {"prefix": prefix, "timeout_s": 0.05, "look_s": 0.03, "retry_s": 0.005, "retry_max_s": 0.03}
        here, there = (Gateway(shared_server.url, **options) for _ in range(2))
        play = Play(shared_server, (here, there))
        await asyncio.gather(here.store.start(), there.store.start())
        try:
            for step in steps:
                await play.act(*step)
            await play.agree()
            # What was in the air may still change it, but not for ever.
            await asyncio.sleep(0.1)
            await play.agree()
            play.check()
        finally:
            await asyncio.gather(here.store.close(), there.store.close())

    asyncio.run(play_all())
