"""Connections that are kept: which is used next, how many there are, and when they are closed."""

import asyncio

import pytest

from gateway.wire.limits import Timeouts
from gateway.wire.poolpolicy import PoolPolicy
from tests.integration.wire.harness import GET, OK, Served, until, wire

from .harness import NAME, PATIENCE_S, PATIENT, Names, connect, kinds, placed


async def together(gateway, count: int) -> None:  # type: ignore[no-untyped-def]
    """So many requests at the same time; `Meeting` answers when all are there."""
    clients = [await gateway.client() for _ in range(count)]
    for client in clients:
        await client.send(GET)
    for client in clients:
        assert (await client.response()).body == b"ok"


class Meeting:
    """Answers nobody until a number of requests is there; from then on everybody at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._all = asyncio.Event()
        self.requests = 0
        self.by_connection: list[int] = []

    async def __call__(self, served: Served) -> None:
        at = len(self.by_connection)
        self.by_connection.append(0)
        while True:
            await served.request()
            self.by_connection[at] += 1
            self.requests += 1
            if self.requests >= self._count:
                self._all.set()
            await self._all.wait()
            await served.send(OK)


async def test_the_connection_used_last_is_used_next_so_that_the_others_can_expire() -> None:
    meeting = Meeting(3)
    async with placed(meeting) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        await together(gateway, 3)
        assert pool.idle == 3
        client = await gateway.client()
        for _ in range(5):
            await client.ask(GET)
        assert sorted(meeting.by_connection) == [1, 1, 6]


async def test_an_unused_connection_is_closed_in_its_time_which_a_pool_may_set_itself() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(idle_s=0.03))
        await (await gateway.client()).ask(GET)
        await until(lambda: pool.open == 0)
        assert pool.closed_idle == 0  # it was we


async def test_no_more_unused_connections_are_kept_than_are_wanted() -> None:
    async with placed(Meeting(5)) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_idle=2))
        await together(gateway, 5)
        assert pool.idle == 2
        await until(lambda: pool.open == 2)


@pytest.mark.parametrize(("policy", "connections"), [
    (PoolPolicy(), 1),
    (PoolPolicy(max_requests_per_connection=1), 7),
    (PoolPolicy(max_requests_per_connection=3), 3),
    (PoolPolicy(max_connection_age_s=PATIENCE_S), 1),
])  # fmt: skip
async def test_a_connection_ends_after_so_many_requests_or_so_much_time(policy: PoolPolicy, connections: int) -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        connect(gateway, server.port, policy=policy)
        client = await gateway.client()
        for _ in range(7):
            assert (await client.ask(GET)).body == b"ok"
        assert server.connections == connections
        assert kinds(gateway) == []


async def test_a_connection_that_is_too_old_is_closed_when_its_request_is_done() -> None:
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_connection_age_s=600))
        client = await gateway.client()
        await client.ask(GET)
        (made,) = pool._open.values()
        made.at -= 600
        await client.ask(GET)
        assert server.connections == 1
        await client.ask(GET)
        assert server.connections == 2


async def test_connections_are_kept_ready_before_anybody_asks() -> None:
    async with placed(Meeting(3)) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(min_idle=2))
        await until(lambda: pool.idle == 2)
        await together(gateway, 3)
        assert pool.reused == 2
        assert kinds(gateway) == []


async def test_what_is_taken_or_expires_of_those_that_are_ready_is_replaced() -> None:
    finish = asyncio.Event()

    async def script(served: Served) -> None:
        await served.request()
        await finish.wait()
        await served.send(OK)

    timeouts = Timeouts(sweep_s=0.01, upstream_idle_s=0.05)
    async with placed(script) as server, wire(timeouts=timeouts) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(min_idle=2))
        await until(lambda: pool.idle == 2)
        client = await gateway.client()
        await client.send(GET)
        await until(lambda: pool.open == 3 and pool.idle == 2)
        await until(lambda: server.connections >= 6)  # each lives for its idle time
        finish.set()
        assert (await client.response()).body == b"ok"


async def test_those_that_are_ready_count_among_those_that_may_be_open() -> None:
    async with placed(Meeting(2)) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(min_idle=2, max_connections=2, wait_s=PATIENCE_S))
        await until(lambda: pool.idle == 2)
        await together(gateway, 4)
        assert server.connections == 2


async def test_one_that_was_made_ready_has_served_nobody_before_it_goes_to_who_waits() -> None:
    names = Names(["127.0.0.1"])
    names.gate.clear()
    policy = PoolPolicy(min_idle=1, max_connections=1, max_requests_per_connection=1, wait_s=PATIENCE_S)
    async with placed() as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, NAME, policy=policy, resolver=names)
        await until(lambda: names.asked > 0)
        client = await gateway.client()
        await client.send(GET)
        await until(lambda: pool.waiting > 0)
        names.gate.set()
        assert (await client.response()).body == b"ok"
        assert pool.reused == 1


async def test_a_replica_that_is_down_is_not_besieged_and_has_its_connections_ready_when_it_is_back() -> None:
    async with placed() as server:
        port = server.port
    async with wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, port, policy=PoolPolicy(min_idle=4))
        await until(lambda: pool.connect_failures == 4)
        loop = asyncio.get_running_loop()
        assert pool._warm_at > loop.time()
        async with placed(port=port):
            assert (await (await gateway.client()).ask(GET)).body == b"ok"  # and so it is known to be back
            await until(lambda: pool.idle >= 4)
            gateway.server.upstreams.discard(pool)
            pool.close()
            await until(lambda: pool.open == 0)


@pytest.mark.parametrize(("line", "idle_s"), [
    (b"keep-alive: timeout=5", 4.0),
    (b"Keep-Alive: timeout=5, max=1000", 4.0),
    (b"keep-alive: max=5,Timeout = 1", 0.5),
    (b"keep-alive: timeout=600", PATIENCE_S),
    (b"keep-alive: max=100", PATIENCE_S),
    (b"keep-alive: timeout=soon", PATIENCE_S),
    (b"x-keep-alive: timeout=5", PATIENCE_S),
])  # fmt: skip
async def test_what_a_server_says_of_its_idle_limit_is_believed(line: bytes, idle_s: float) -> None:
    async def script(served: Served) -> None:
        while True:
            await served.request()
            await served.send(OK.replace(b"content-length", line + b"\r\ncontent-length"))

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        answer = await (await gateway.client()).ask(GET)
        assert answer.values(b"keep-alive") == []  # it is about our connection, not the client's
        sweeps = gateway.server.clock.at
        await until(lambda: gateway.server.clock.at > sweeps + 2 * PATIENT.sweep_s)
        assert pool.idle_s == idle_s


async def test_a_server_that_says_that_it_keeps_nothing_is_asked_on_new_connections() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK.replace(b"content-length", b"keep-alive: timeout=0\r\ncontent-length"))
        await served.closed()

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        client = await gateway.client()
        await client.ask(GET)
        await until(lambda: pool.idle_s == 0.0)
        await client.ask(GET)
        assert server.connections == 2
        assert kinds(gateway) == []


async def test_unused_connections_that_the_server_closes_are_counted_and_replaced() -> None:
    async def script(served: Served) -> None:
        await served.request()
        await served.send(OK)

    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port)
        client = await gateway.client()
        for count in (1, 2, 3):
            await client.ask(GET)
            await until(lambda count=count: pool.closed_idle == count)  # type: ignore[misc]
        assert (pool.open, pool.connects, pool.reused) == (0, 3, 0)
