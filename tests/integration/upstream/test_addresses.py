"""Where a replica is: addresses of both families, names, and names that move."""

import asyncio
import socket

import pytest

from gateway.wire.failure import FailureKind
from gateway.wire.poolpolicy import PoolPolicy
from tests.integration.wire.harness import GET, OK, PATIENCE_S, Served, answering, post, until, wire

from .harness import (
    NAME,
    NO_SUCH_NAME,
    PATIENT,
    Names,
    black_hole,
    connect,
    has_ipv6,
    kinds,
    placed,
    shared_port,
)

ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
OFTEN = PoolPolicy(dns_refresh_s=0.05)
SELDOM = PoolPolicy(dns_refresh_s=600)


def numbered(number: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % number


@ipv6
async def test_a_replica_may_have_an_ipv6_address() -> None:
    async with placed(host="::1") as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, "::1")
        assert (await (await gateway.client()).ask(GET)).body == b"ok"


async def test_connections_are_watched_by_the_kernel_and_never_wait_for_small_packets() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(dead_after_s=40))
        await (await gateway.client()).ask(GET)
        (connection,) = pool._open
        opened = connection._transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 40_000


# --- several addresses


@pytest.mark.parametrize("silent", ["127.0.0.2", pytest.param("::1", marks=ipv6)])
async def test_an_address_that_is_silent_costs_its_head_start_and_no_more(silent: str) -> None:
    """One after the other, the second address would be tried when the time to connect is over."""
    port = shared_port("127.0.0.1", silent)
    with black_hole(silent, port):
        async with placed(port=port), wire(timeouts=PATIENT) as gateway:
            pool = connect(gateway, port, NAME, resolver=Names([silent, "127.0.0.1"]))
            assert (await (await gateway.client()).ask(GET)).body == b"ok"
            assert kinds(gateway) == []
            assert pool.connects == 1


async def test_an_address_that_refuses_costs_nothing() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, NAME, resolver=Names(["127.0.0.2", "127.0.0.3", "127.0.0.1"]))
        assert (await (await gateway.client()).ask(GET)).body == b"ok"
        assert kinds(gateway) == []


@ipv6
async def test_ipv4_is_used_where_ipv6_leads_nowhere() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, NAME, resolver=Names(["::1", "127.0.0.1"]))
        assert (await (await gateway.client()).ask(GET)).body == b"ok"


async def test_all_connections_go_to_the_address_that_accepted_first() -> None:
    """Whatever order the name's addresses come in."""
    port = shared_port("127.0.0.1", "127.0.0.2")
    policy = PoolPolicy(dns_refresh_s=0.001, max_requests_per_connection=1)
    async with (
        placed(port=port) as one,
        placed(host="127.0.0.2", port=port) as other,
        wire(timeouts=PATIENT) as gateway,
    ):
        names = Names(["127.0.0.1", "127.0.0.2"])
        connect(gateway, port, NAME, resolver=names, policy=policy)
        client = await gateway.client()
        for _ in range(5):
            await client.ask(GET)
            names.answers = list(reversed(names.answers))  # type: ignore[arg-type]
        assert (one.connections, other.connections) == (5, 0)


async def test_where_no_address_accepts_the_failure_says_so() -> None:
    async with placed() as server:
        port = server.port
    async with wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, port, NAME, resolver=Names(["127.0.0.1", "127.0.0.2"]))
        answer = await (await gateway.client()).ask(GET)
        assert answer.status == 502
        assert b"refused" in answer.body
        assert NAME.encode() in answer.body
        assert kinds(gateway) == [FailureKind.connect_failed]
        assert pool.connect_failures == 1


# --- names


async def test_a_lookup_that_takes_its_time_holds_up_nobody_else() -> None:
    names = Names(["127.0.0.1"])
    names.gate.clear()
    async with placed() as server, wire(answering(OK), timeouts=PATIENT) as gateway:
        quick = gateway.handler.upstreams
        connect(gateway, server.port, NAME, resolver=names)
        waiting = await gateway.client()
        await waiting.send(GET)
        await until(lambda: names.asked == 1)
        gateway.handler.upstreams = quick
        assert (await (await gateway.client()).ask(GET)).body == b"ok"
        names.gate.set()
        assert (await waiting.response()).body == b"ok"


async def test_one_lookup_serves_all_who_wait_for_it_and_survives_those_who_leave() -> None:
    names = Names(["127.0.0.1"])
    names.gate.clear()
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, NAME, resolver=names, policy=SELDOM)
        clients = [await gateway.client() for _ in range(3)]
        for client in clients:
            await client.send(GET)
        await until(lambda: len(pool._dialling) == 3)
        clients[0].close()
        await until(lambda: len(pool._dialling) == 2)
        names.gate.set()
        for client in clients[1:]:
            assert (await client.response()).body == b"ok"
        assert (names.asked, pool.lookups, pool.failed_lookups) == (1, 1, 0)
        assert pool.addresses == (f"127.0.0.1:{server.port}",)


async def test_a_name_that_nobody_knows_is_a_connect_that_failed_until_it_is_known() -> None:
    names = Names(NO_SUCH_NAME)
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, NAME, resolver=names, policy=OFTEN)
        client = await gateway.client()
        answer = await client.ask(GET)
        assert answer.status == 502
        assert f"the name {NAME} does not resolve".encode() in answer.body
        assert pool.failed_lookups == 1
        names.answers = ["127.0.0.1"]
        await until(lambda: asyncio.get_running_loop().time() >= pool._dialer.name.due_at)  # type: ignore[union-attr]
        assert (await client.ask(GET)).body == b"ok"


async def test_while_nobody_can_tell_the_last_good_addresses_are_used() -> None:
    names = Names(["127.0.0.1"])
    policy = PoolPolicy(dns_refresh_s=0.02, max_requests_per_connection=1)
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, NAME, resolver=names, policy=policy)
        client = await gateway.client()
        assert (await client.ask(GET)).body == b"ok"
        for failure in (NO_SUCH_NAME, []):
            failed = pool.failed_lookups
            names.answers = failure  # type: ignore[assignment]
            await until(lambda: asyncio.get_running_loop().time() >= pool._dialer.name.due_at)  # type: ignore[union-attr]
            assert (await client.ask(GET)).body == b"ok"
            assert pool.failed_lookups > failed
        assert server.connections == 3
        assert kinds(gateway) == []


async def test_a_name_that_moves_is_followed_and_idle_connections_to_the_old_address_are_closed() -> None:
    """Nobody need connect for it to be noticed: a kept connection alone would be used for ever."""
    port = shared_port("127.0.0.1", "127.0.0.2")
    names = Names(["127.0.0.1"])
    closed = asyncio.Event()

    async def old(served: Served) -> None:
        try:
            await answering(numbered(1))(served)
        finally:
            closed.set()

    async with (
        placed(old, port=port),
        placed(answering(numbered(2)), host="127.0.0.2", port=port),
        wire(timeouts=PATIENT) as gateway,
    ):
        pool = connect(gateway, port, NAME, resolver=names, policy=OFTEN)
        client = await gateway.client()
        assert (await client.ask(GET)).body == b"1"
        names.answers = ["127.0.0.2"]
        async with asyncio.timeout(PATIENCE_S):
            await closed.wait()
        assert pool.idle == 0
        assert (await client.ask(GET)).body == b"2"
        assert pool.addresses == (f"127.0.0.2:{port}",)
        assert kinds(gateway) == []


async def test_a_request_that_runs_while_its_replica_moves_is_finished_where_it_is() -> None:
    port = shared_port("127.0.0.1", "127.0.0.2")
    names = Names(["127.0.0.1"])
    finish = asyncio.Event()

    async def old(served: Served) -> None:
        while True:
            await served.request()
            await finish.wait()
            await served.send(numbered(1))

    async with (
        placed(old, port=port) as first,
        placed(answering(numbered(2)), host="127.0.0.2", port=port),
        wire(timeouts=PATIENT) as gateway,
    ):
        pool = connect(gateway, port, NAME, resolver=names, policy=OFTEN)
        client = await gateway.client()
        await client.send(GET)
        await until(lambda: len(first.requests) == 1)
        names.answers = ["127.0.0.2"]
        await until(lambda: pool.addresses == (f"127.0.0.2:{port}",))
        finish.set()
        assert (await client.response()).body == b"1"
        assert pool.idle == 0
        assert (await client.ask(GET)).body == b"2"
        assert pool.idle == 1


async def test_a_refused_connect_looks_whether_the_replica_has_moved_before_it_fails() -> None:
    port = shared_port("127.0.0.1", "127.0.0.2")
    names = Names(["127.0.0.1"])
    async with wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, port, NAME, resolver=names, policy=SELDOM)
        client = await gateway.client()
        async with placed(port=port):
            assert (await client.ask(GET)).body == b"ok"
        await until(lambda: pool.idle == 0)
        names.answers = ["127.0.0.2"]
        assert pool._dialer.name is not None
        pool._dialer.name.asked_at -= 60  # what was looked up just now is not doubted
        async with placed(host="127.0.0.2", port=port):
            assert (await client.ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == []
        assert names.asked == 2


async def test_a_dead_replica_is_no_load_for_dns() -> None:
    names = Names(["127.0.0.1"])
    async with placed() as server:
        port = server.port
    async with wire(timeouts=PATIENT) as gateway:
        connect(gateway, port, NAME, resolver=names, policy=SELDOM)
        client = await gateway.client()
        for _ in range(20):
            assert (await client.ask(GET)).status == 502
        assert names.asked <= 2  # at most once a second


async def test_names_are_looked_up_by_the_system_where_no_resolver_is_given() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, "localhost")
        assert (await (await gateway.client()).ask(GET)).body == b"ok"
        assert f"127.0.0.1:{server.port}" in pool.addresses
