"""A pool that has no room sends its requests to another that has some to spare, and nobody is slower for it."""

import asyncio
import json
from pathlib import Path

from gateway.tenants.keys import digest
from tests.integration.reload.harness import site

from .harness import ANSWER, CHAT, PLAIN, Engine, Held, House, Message, house, until

ONE_AT_A_TIME = {"admission": {"max_in_flight": 1}}
SPILLS = {**ONE_AT_A_TIME, "when_full": {"spill": "grammar"}}
POOLS = {"interactive": ["a"], "grammar": ["g"]}


def took(answer: Message) -> tuple[int, list[bytes], list[bytes]]:
    return answer.status, answer.values(b"x-steplane-pool"), answer.values(b"x-steplane-route")


def guests(running: House) -> list[int]:
    return [replica.guests for replica in running.replicas]


def waiting(running: House, pool: str = "interactive") -> int:
    return running.gateway.router.pools[pool].waiting


async def both_busy(running: House) -> list[asyncio.Task[Message]]:
    """One request on each engine, the second as a guest."""
    asking = []
    for count in (1, 2):
        asking.append(asyncio.create_task(running.ask(CHAT, PLAIN[CHAT])))
        await until(lambda count=count: len(running.asked) == count)  # type: ignore[misc]
    return asking


async def test_what_there_is_no_room_for_goes_to_the_other_pool_and_is_counted() -> None:
    held = Held(end=ANSWER)
    engines = {"interactive": [Engine("a", held)], "grammar": [Engine("g", held)]}
    async with house(engines, options={"interactive": SPILLS}) as running:
        asking = await both_busy(running)
        assert guests(running) == [0, 1]
        pools = json.loads((await running.admin("/api/v1/pools"))[1])["pools"]
        assert [each["when_full"] for each in pools] == [{"spill": "grammar"}, "wait"]
        assert [each["guests"] for pool in pools for each in pool["replicas"]] == [0, 1]
        held.finish.set()
        assert [took(await each) for each in asking] == [
            (200, [b"interactive"], [b"plain"]),
            (200, [b"grammar"], [b"plain"]),
        ]
        await until(lambda: guests(running) == [0, 0] and running.in_flight == 0)
        assert await running.metric("steplane_spilled_requests_total", **{"from": "interactive", "to": "grammar"}) == 1


async def test_who_waits_goes_where_there_is_room_first() -> None:
    first, second = Held(end=ANSWER), Held(end=ANSWER)
    engines = {"interactive": [Engine("a", first)], "grammar": [Engine("g", second)]}
    async with house(engines, options={"interactive": SPILLS}) as running:
        asking = await both_busy(running)
        third = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: waiting(running) == 1)
        second.finish.set()
        assert took(await third) == (200, [b"grammar"], [b"plain"])
        assert took(await asking[1])[0] == 200
        first.finish.set()
        assert took(await asking[0])[0] == 200
        await until(lambda: guests(running) == [0, 0])


async def test_a_client_that_leaves_as_a_guest_gives_its_room_back() -> None:
    held = Held(end=ANSWER)
    engines = {"interactive": [Engine("a", held)], "grammar": [Engine("g", held)]}
    async with house(engines, options={"interactive": SPILLS}) as running:
        asking = await both_busy(running)
        asking[1].cancel()
        for client in running._clients[1:]:
            client.close()
        await until(lambda: guests(running) == [0, 0] and running.in_flight == 1)
        held.finish.set()
        assert (await asking[0]).status == 200


async def test_a_guest_whose_engine_is_gone_waits_for_its_own_pool() -> None:
    held = Held(end=ANSWER)
    engines = {"interactive": [Engine("a", held)], "grammar": [Engine("g")]}
    async with house(engines, options={"interactive": SPILLS}, down=("grammar",)) as running:
        first = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 1)
        second = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: waiting(running) == 1)
        held.finish.set()
        assert [took(await each)[:2] for each in (first, second)] == [(200, [b"interactive"])] * 2
        assert guests(running) == [0, 0]


async def test_a_tenant_goes_only_to_pools_that_it_may_use() -> None:
    held = Held(end=ANSWER)
    engines = {"interactive": [Engine("a", held)], "grammar": [Engine("g", held)]}
    named = {"acme": {"keys": [digest(b"sk-acme")], "pools": ["interactive"]}}
    async with house(engines, options={"interactive": SPILLS}, config={"tenants": {"named": named}}) as running:
        line = "authorization: Bearer sk-acme"
        first = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT], line))
        await until(lambda: len(running.asked) == 1)
        second = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT], line))
        await until(lambda: waiting(running) == 1)
        anyone = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: guests(running) == [0, 1])
        held.finish.set()
        assert [took(await each)[1] for each in (first, second, anyone)] == [
            [b"interactive"],
            [b"interactive"],
            [b"grammar"],
        ]


async def test_a_reload_begins_and_ends_it(tmp_path: Path) -> None:
    held = Held(end=ANSWER)
    async with site(tmp_path, POOLS, answer=held, interactive__admission={"max_in_flight": 1}) as running:
        first = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: len(running.asked) == 1)
        second = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: waiting(running) == 1)
        running.write(POOLS, **{f"interactive__{key}": value for key, value in SPILLS.items()})
        await running.take_over()
        third = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: sum(guests(running)) == 1)
        running.write(POOLS, interactive__admission={"max_in_flight": 1})
        await running.take_over()
        fourth = asyncio.create_task(running.ask(CHAT, PLAIN[CHAT]))
        await until(lambda: waiting(running) == 2)
        held.finish.set()
        pools = [took(await each)[1] for each in (first, second, third, fourth)]
        assert pools == [[b"interactive"], [b"interactive"], [b"grammar"], [b"interactive"]]
        await until(lambda: guests(running) == [0, 0])
