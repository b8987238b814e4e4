"""What one gateway does, the others know: on a Redis, or under a supervisor, that is well."""

import asyncio
from pathlib import Path

from tests.integration.state.conftest import Join
from tests.integration.state.harness import RedisServer
from tests.waiting import until


async def test_a_forced_value_is_shown_at_once_and_known_to_the_other_gateway(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    assert here.force("s", b"open") == 1
    assert here.heard == [("s", 1, b"open")]
    await until(lambda: there.heard == [("s", 1, b"open")], "heard there")
    await here.published()
    assert here.heard == [("s", 1, b"open")]


async def test_an_advance_is_applied_once_for_all(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    here.force("s", b"open")
    await until(lambda: there.version("s") == 1, "heard there")
    await here.published()
    outcomes: list[bool] = []
    for gateway in (here, there):
        gateway.advance("s", 1, b"half-open", outcomes)
    await until(lambda: len(outcomes) == 2, "decided")
    assert sorted(outcomes) == [False, True]
    await until(lambda: here.version("s") == there.version("s") == 2, "known everywhere")
    assert here.heard == there.heard == [("s", 1, b"open"), ("s", 2, b"half-open")]


async def test_a_gateway_that_comes_later_learns_everything_before_it_starts(place: str | Path, join: Join) -> None:
    first = await join(place)
    for number in range(1500):
        first.force(str(number), b"open")
    await first.published()
    second = await join(place)
    assert sorted(second.heard) == sorted((str(number), 1, b"open") for number in range(1500))


async def test_two_forces_at_the_same_time_survive_as_one_value_above_both(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    here.force("s", b"here")
    there.force("s", b"there")
    await until(lambda: here.version("s") == there.version("s") == 2, "agreed")
    assert here.value("s") == there.value("s")
    assert here.value("s") in (b"here", b"there")


async def test_a_force_wins_over_an_advance_that_did_not_know_of_it(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    here.force("s", b"open")
    await until(lambda: there.version("s") == 1, "heard there")
    await here.published()
    outcomes: list[bool] = []
    there.advance("s", 1, b"closed", outcomes)
    here.force("s", b"open again")
    await until(lambda: len(outcomes) == 1, "decided")
    await here.published()
    await until(lambda: here.value("s") == there.value("s") == b"open again", "the force stands")
    assert here.version("s") == there.version("s")


async def test_the_last_of_many_changes_is_what_everybody_ends_with(place: str | Path, join: Join) -> None:
    gateways = [await join(place) for _ in range(3)]
    for number in range(300):
        gateways[number % 3].force(str(number % 5), b"%d" % number)
        if number % 7 == 0:
            await asyncio.sleep(0)
    for gateway in gateways:
        await gateway.published()
    keys = [str(key) for key in range(5)]
    await until(lambda: len({tuple(g.version(key) for key in keys) for g in gateways}) == 1, "agreed")
    assert len({tuple(gateway.value(key) for key in keys) for gateway in gateways}) == 1
    for gateway in gateways:
        for key in keys:
            versions = [version for heard, version, _ in gateway.heard if heard == key]
            assert versions == sorted(set(versions))


async def test_installations_with_different_prefixes_do_not_meet(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url, prefix="one"), await join(server.url, prefix="two")
    here.force("s", b"open")
    await here.published()
    there.force("s", b"mine")
    await there.published()
    assert here.value("s") == b"open"
    assert there.heard == [("s", 1, b"mine")]


async def test_keys_and_values_may_be_anything(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    names = ["", " ", "\n", "a b\nc", "=", "#", "{x}", "ключ", "\ud800", "\0"]
    for name in names:
        here.force(name, name.encode("utf-8", "surrogatepass") + b"\0\xff\n 1 2")
    await until(lambda: len(there.heard) == len(names), "heard there")
    assert sorted(there.heard) == sorted(here.heard)
    late = await join(place)
    assert sorted(late.heard) == sorted(here.heard)


async def test_a_record_is_forgotten_by_all_and_removed_when_its_time_is_over(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url), await join(server.url)
    here.force("short", b"open", ttl_s=0.3)
    here.force("long", b"open")
    await until(lambda: len(there.heard) == 2, "heard there")
    await until(lambda: not there.version("short") and not here.version("short"), "forgotten")
    await until(lambda: server.call("HLEN", "{steplane:signature}:records") == 2, "removed")
    late = await join(server.url)
    assert late.heard == [("long", 1, b"open")]
    there.force("short", b"open anew")
    await until(lambda: here.value("short") == b"open anew", "a new life")


async def test_what_nobody_changes_leaves_nothing_behind(server: RedisServer, join: Join) -> None:
    here = await join(server.url, ttls_s={"signature": 2.0})
    here.force("s", b"open")
    here.store.add("signature", "s", {"trips": 1.0})
    await here.published()
    await until(lambda: len(server.call("KEYS", "*")) == 5, "all written")
    await here.store.close()
    # The number of the last batch outlives them for an hour; which server grants leases stays.
    left = ["{steplane:leases}:instance", "{steplane:signature}:batch"]
    await until(
        lambda: (
            {name.decode().rsplit(":", 1)[0] for name in server.call("KEYS", "*")}
            == {left[0].rsplit(":", 1)[0], left[1]}
        ),
        "expired",
    )


async def test_counters_are_added_up_over_all_gateways_and_told_as_differences(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    for number in range(10):
        here.store.add("signature", "s", {"steps": 1.0, "us": 0.1 * number})
        there.store.add("signature", "s", {"steps": 2.0})
    total = {"steps": 30.0, "us": 4.5}
    await until(lambda: _near(here.store.totals("signature", "s"), total), "added up here")
    await until(lambda: _near(there.store.totals("signature", "s"), total), "added up there")
    assert _near(_sum(here.added), {"steps": 20.0})
    assert _near(_sum(there.added), {"steps": 10.0, "us": 4.5})
    late = await join(place)
    await until(lambda: _near(_sum(late.added), total), "told to a late one")


async def test_many_counters_take_several_exchanges(place: str | Path, join: Join) -> None:
    here, there = await join(place), await join(place)
    for number in range(2500):
        here.store.add("signature", str(number), {"steps": 1.0})
    await until(lambda: len(there.added) == 2500, "told there")
    assert here.added == []
    assert {key for key, _ in there.added} == {str(number) for number in range(2500)}


async def test_what_waits_is_published_when_a_gateway_leaves(place: str | Path, join: Join) -> None:
    here, there = await join(place, count_s=3600.0), await join(place)
    here.force("s", b"open")
    here.store.add("signature", "s", {"trips": 1.0})
    await here.store.close()
    await until(lambda: there.value("s") == b"open" and _sum(there.added) == {"trips": 1.0}, "told there")
    assert here.value("s") == b"open"


def _sum(added: list[tuple[str, dict[str, float]]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for _, amounts in added:
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0.0) + amount
    return sums


def _near(amounts: dict[str, float], expected: dict[str, float]) -> bool:
    return amounts.keys() == expected.keys() and all(abs(amounts[name] - expected[name]) < 1e-6 for name in expected)
