"""Redis is killed, paused, emptied, full or locked: nothing waits for it, and nothing forced is forgotten."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.processes import free_port
from tests.integration.state.conftest import Join
from tests.integration.state.harness import RedisServer, first_lease
from tests.waiting import until

RECORDS = "{steplane:signature}:records"


def kill(server: RedisServer) -> None:
    server.kill()


def pause(server: RedisServer) -> None:
    server.pause()


def come_back_empty(server: RedisServer) -> None:
    server.start()


def resume(server: RedisServer) -> None:
    server.resume()


FAULTS = pytest.mark.parametrize(
    ("break_it", "mend_it"),
    [pytest.param(kill, come_back_empty, id="killed"), pytest.param(pause, resume, id="paused")],
)
Act = Callable[[RedisServer], None]


@FAULTS
async def test_what_is_forced_meanwhile_is_shown_at_once_and_published_later(
    server: RedisServer, join: Join, break_it: Act, mend_it: Act
) -> None:
    here, there = await join(server.url), await join(server.url)
    here.force("before", b"open")
    await until(lambda: there.value("before") == b"open", "heard there")
    break_it(server)
    began = time.perf_counter()
    for number in range(100):
        here.force("s", b"%d" % number)
        there.force("t", b"%d" % number)
    # If each of them waited for a server that doesn't answer, it would be a hundred seconds.
    assert time.perf_counter() - began < 20
    assert (here.value("s"), there.value("t")) == (b"99", b"99")
    await until(lambda: not here.store.status().connected, "noticed")
    status = here.store.status()
    assert status.last_error
    assert status.pending == 1
    mend_it(server)
    await until(lambda: here.value("t") == b"99" and there.value("s") == b"99", "known everywhere")
    await here.connected()
    assert here.store.status().last_error is None
    late = await join(server.url)
    assert {key: value for key, _, value in late.heard} == {"before": b"open", "s": b"99", "t": b"99"}


@FAULTS
async def test_no_lease_is_granted_meanwhile_nor_while_an_older_one_may_live(
    server: RedisServer, join: Join, break_it: Act, mend_it: Act
) -> None:
    patience = {"timeout_s": 15.0, "lease_timeout_s": 0.1}
    here, there = await join(server.url, **patience), await join(server.url, **patience)
    asked = await first_lease(here, 0.5)
    break_it(server)
    for gateway in (here, there):
        began = time.perf_counter()
        assert not await gateway.store.lease("probe", 0.5)
        # As long as a lease is waited for, and not as long as anything else is.
        assert time.perf_counter() - began < 10
    mend_it(server)
    await first_lease(there, 0.5)
    assert time.monotonic() - asked >= 0.49  # Redis counts whole milliseconds


async def test_an_advance_waits_for_redis_and_is_applied_if_nothing_has_changed(
    server: RedisServer, join: Join
) -> None:
    here, there = await join(server.url), await join(server.url)
    here.force("s", b"open")
    here.force("t", b"open")
    await until(lambda: there.version("s") == there.version("t") == 1, "heard there")
    server.pause()
    outcomes: list[bool] = []
    here.advance("s", 1, b"closed", outcomes)
    here.advance("t", 1, b"closed", outcomes)
    there.force("t", b"open again")
    await until(lambda: not here.store.status().connected, "noticed")
    assert (here.value("s"), outcomes) == (b"open", [])
    server.resume()
    await until(lambda: len(outcomes) == 2, "decided")
    await until(lambda: here.value("s") == there.value("s") == b"closed", "closed everywhere")
    await until(lambda: here.value("t") == there.value("t") == b"open again", "the force stands")


async def test_a_close_that_did_not_know_of_another_trip_does_not_undo_it(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url), await join(server.url)
    server.kill()
    await until(lambda: not here.store.status().connected, "noticed")
    here.force("s", b"open here")
    here.advance("s", 1, b"closed here")
    there.force("s", b"open there")
    server.start()
    for gateway in (here, there):
        await gateway.connected()
        await gateway.published()
    await until(lambda: here.version("s") == there.version("s"), "agreed")
    assert here.value("s") == there.value("s")
    assert here.value("s") in (b"open here", b"open there")


async def test_a_redis_that_was_emptied_is_given_again_what_the_gateways_know(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url), await join(server.url)
    for number in range(200):
        (here, there)[number % 2].force(str(number), b"open")
    await until(lambda: len(here.heard) == len(there.heard) == 200, "heard")
    here.force("0", b"open again")
    await until(lambda: len(here.heard) == len(there.heard) == 201, "heard")
    server.call("FLUSHALL")
    await until(lambda: server.call("HLEN", RECORDS) == 201, "restored")
    late = await join(server.url)
    assert late.version("0") == 2
    assert len(here.heard) == len(there.heard) == 201


async def test_after_a_loss_the_one_that_knows_of_a_later_trip_prevails(server: RedisServer, join: Join) -> None:
    here = await join(server.url)
    here.force("s", b"open")
    await here.published()
    there = await join(server.url)
    server.stop()
    server.start()
    await here.connected()
    here.advance("s", 1, b"closed")
    await until(lambda: here.value("s") == b"closed", "closed")
    there.force("s", b"open again")
    await until(lambda: here.value("s") == b"open again", "the later trip stands")
    await until(lambda: here.version("s") == there.version("s"), "agreed")


async def test_a_redis_that_comes_back_with_older_data_is_brought_up_to_date(tmp_path: Path, join: Join) -> None:
    server = RedisServer(tmp_path / "redis", "--save", "3600 1").start()
    try:
        here = await join(server.url)
        here.force("s", b"first")
        await here.published()
        server.call("SAVE")
        here.force("s", b"second")
        await here.published()
        server.kill()
        server.start()
        await until(lambda: server.call("HGET", RECORDS, "=s").startswith(b"2 2 "), "restored")
        late = await join(server.url)
        assert late.heard == [("s", 2, b"second")]
        assert here.heard == [("s", 1, b"first"), ("s", 2, b"second")]
    finally:
        server.kill()


async def test_a_full_redis_is_told_when_it_has_room_again_and_heard_all_the_time(
    server: RedisServer, join: Join
) -> None:
    here, there = await join(server.url), await join(server.url)
    there.force("s", b"open")
    await until(lambda: here.value("s") == b"open", "heard here")
    server.call("CONFIG", "SET", "maxmemory", "1")
    here.force("t", b"open")
    await until(lambda: "OOM" in (here.store.status().last_error or ""), "refused")
    assert not here.store.status().connected
    assert here.value("t") == b"open"
    assert not await here.store.lease("probe", 1.0)
    server.call("CONFIG", "SET", "maxmemory", "0")
    await until(lambda: there.value("t") == b"open", "published")
    await here.connected()


async def test_a_redis_that_has_become_a_replica_is_left_and_tried_again(server: RedisServer, join: Join) -> None:
    here = await join(server.url)
    server.call("REPLICAOF", "127.0.0.1", free_port())
    here.force("s", b"open")
    await until(lambda: "READONLY" in (here.store.status().last_error or ""), "refused")
    server.call("REPLICAOF", "NO", "ONE")
    await here.published()
    await here.connected()


async def test_a_wrong_password_is_named_and_a_right_one_in_the_file_found(
    server: RedisServer, join: Join, tmp_path: Path
) -> None:
    server.call("CONFIG", "SET", "requirepass", "right")
    file = tmp_path / "password"
    file.write_text("wrong\n")
    gateway = await join(server.url, password_file=file, start_wait_s=0.05)
    assert gateway.force("s", b"open") == 1
    await until(lambda: gateway.store.status().last_error, "refused")
    assert "password" in (gateway.store.status().last_error or "")
    assert "wrong" not in str(gateway.store.status()).replace("wrong pass", "").replace("or wrong", "")
    file.write_text("right\n")
    await gateway.published()


async def test_a_message_that_is_lost_is_made_up_for(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url), await join(server.url)
    here.force("s", b"open")
    await until(lambda: there.value("s") == b"open", "heard there")
    # As if a message had been lost: a change that nobody was told of.
    packed = server.call("HGET", RECORDS, "=s").replace(b"1 1 ", b"2 1 ", 1).replace(b"open", b"lost")
    server.call(
        "EVAL", f"redis.call('HSET', '{RECORDS}', '=s', ARGV[1]); redis.call('HINCRBY', '{RECORDS}', '#', 1)", 0, packed
    )
    await until(lambda: there.value("s") == here.value("s") == b"lost", "made up for")


async def test_what_else_lies_under_its_keys_is_passed_over(server: RedisServer, join: Join) -> None:
    server.call("HSET", RECORDS, "=strange", "nothing of ours", "other", "x")
    here = await join(server.url)
    assert here.heard == []
    here.force("strange", b"open")
    await here.published()


async def test_a_redis_that_is_not_there_at_the_start_is_no_reason_to_wait(join: Join, tmp_path: Path) -> None:
    port = free_port()
    began = time.perf_counter()
    here = await join(f"redis://127.0.0.1:{port}", start_wait_s=0.1)
    assert time.perf_counter() - began < 10  # it takes what it waits for: a tenth of a second
    here.force("s", b"open")
    here.store.add("signature", "s", {"trips": 1.0})
    assert not await here.store.lease("probe", 1.0)
    server = RedisServer(tmp_path / "redis", port=port).start()
    try:
        await here.published()
        there = await join(server.url)
        assert there.value("s") == b"open"
        await until(lambda: there.added == [("s", {"trips": 1.0})], "counted")
    finally:
        server.kill()


async def test_counters_are_added_once_whatever_was_in_doubt(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url, timeout_s=0.1), await join(server.url)
    added = 0
    for _ in range(6):
        for _ in range(5):
            here.store.add("signature", "s", {"trips": 1.0})
            added += 1
            await asyncio.sleep(0.01)
        server.pause()
        await asyncio.sleep(0.15)
        server.resume()
        await asyncio.sleep(0.05)
    await until(lambda: sum(amounts["trips"] for _, amounts in there.added) == added, "all counted")
    assert here.store.totals("signature", "s") == {"trips": float(added)}
    assert here.added == []


async def test_leases_are_exclusive_and_can_be_given_back_only_by_their_holder(server: RedisServer, join: Join) -> None:
    here, there = await join(server.url), await join(server.url)
    await first_lease(here, 0.3)
    here.store.release("probe")
    await first_lease(there, 0.3)
    here.store.release("probe")
    assert not await here.store.lease("probe", 0.3)
    await first_lease(here, 0.3)
