"""How many connections a replica gets, and who waits for one: in turn, within bounds, never for ever."""

import asyncio

import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import error_reply
from gateway.wire.poolpolicy import PoolPolicy
from tests.integration.wire.harness import GET, OK, Script, Served, answering, post, until, wire

from .harness import PATIENCE_S, PATIENT, connect, kinds, placed

ONE = PoolPolicy(max_connections=1, wait_s=PATIENCE_S)


class Gate:
    """Answers requests one at a time, when told to; notes how many are open at once."""

    def __init__(self) -> None:
        self.arrived: list[bytes] = []
        self.running = 0
        self.most = 0
        self._open = asyncio.Semaphore(0)

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self._open.release()

    async def __call__(self, served: Served) -> None:
        while True:
            message = await served.request()
            self.arrived.append(message.body)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self._open.acquire()
            finally:
                self.running -= 1
            await served.send(OK)


async def test_a_replica_never_gets_more_connections_than_it_may_have_and_all_requests_are_served() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_connections=3, wait_s=PATIENCE_S))
        clients = [await gateway.client() for _ in range(12)]
        for client in clients:
            await client.send(GET)
        await until(lambda: pool.waiting == 9 and gate.running == 3)
        assert (pool.open, server.connections) == (3, 3)
        gate.let(12)
        for client in clients:
            assert (await client.response()).body == b"ok"
        assert (server.connections, gate.most, pool.waiting, pool.reused) == (3, 3, 0, 9)


async def test_those_who_wait_are_served_in_the_order_in_which_they_came() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=ONE)
        clients = [await gateway.client() for _ in range(6)]
        for at, client in enumerate(clients):
            await client.send(post(b"%d" % at))
            await until(lambda at=at: pool.waiting == at and len(gate.arrived) == 1)  # type: ignore[misc]
        gate.let(6)
        for client in clients:
            await client.response()
        assert gate.arrived == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_a_request_that_waited_too_long_is_told_that_the_replica_is_full() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_connections=1, wait_s=0.02))
        first, second = await gateway.client(), await gateway.client()
        await first.send(GET)
        await until(lambda: gate.running == 1)
        answer = await second.ask(post(b"late"))
        assert answer.status == 503
        assert b"got free within 0.02 s" in answer.body
        assert kinds(gateway) == [FailureKind.pool_full]
        assert (pool.waiting, pool.turned_away) == (0, 1)
        gate.let()
        await first.response()
        assert gate.arrived == [b""]  # the other was never written


@pytest.mark.parametrize(("most", "waiting"), [(0, 0), (2, 2)])
async def test_no_more_may_wait_than_there_is_room_for(most: int, waiting: int) -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        policy = PoolPolicy(max_connections=1, max_waiting=most, wait_s=PATIENCE_S)
        pool = connect(gateway, server.port, policy=policy)
        clients = [await gateway.client() for _ in range(1 + most)]
        for at, client in enumerate(clients):
            await client.send(GET)
            await until(lambda at=at: pool.waiting == at)  # type: ignore[misc]
        await until(lambda: gate.running == 1)
        answer = await (await gateway.client()).ask(GET)
        assert answer.status == 503
        assert b"all 1 connections" in answer.body
        assert pool.waiting == waiting
        gate.let(1 + most)
        for client in clients:
            await client.response()


async def test_a_request_that_finds_a_replica_full_may_be_sent_to_another() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(answering(OK), timeouts=PATIENT) as gateway:
        other = gateway.handler.upstreams[0]
        full = connect(gateway, server.port, policy=PoolPolicy(max_connections=1, max_waiting=0))
        first = await gateway.client()
        await first.send(GET)
        await until(lambda: gate.running == 1)
        gateway.handler.upstreams = [full, other]
        assert (await (await gateway.client()).ask(post(b"x"))).body == b"ok"
        assert kinds(gateway) == [FailureKind.pool_full]
        gate.let()
        await first.response()


async def test_a_client_that_leaves_gives_up_its_place() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=ONE)
        clients = [await gateway.client() for _ in range(3)]
        for at, client in enumerate(clients):
            await client.send(post(b"%d" % at))
            await until(lambda at=at: pool.waiting == at)  # type: ignore[misc]
        clients[1].close()
        await until(lambda: pool.waiting == 1)
        gate.let(2)
        assert (await clients[2].response()).body == b"ok"
        assert gate.arrived == [b"0", b"2"]


def once(answer: bytes) -> Script:
    async def script(served: Served) -> None:
        await served.request()
        if answer:
            await served.send(answer)

    return script


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok", b""])
async def test_when_a_connection_ends_the_next_in_turn_gets_a_new_one(answer: bytes) -> None:
    async with placed(once(answer)) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=ONE)
        clients = [await gateway.client() for _ in range(4)]
        for client in clients:
            await client.send(GET)
        statuses = [(await client.response()).status for client in clients]
        assert statuses == [200 if answer else 502] * 4
        assert (pool.waiting, server.connections) == (0, 4)


async def test_those_who_wait_for_a_replica_that_refuses_are_told_one_by_one() -> None:
    async with placed() as server:
        port = server.port
    async with wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, port, policy=ONE)
        clients = [await gateway.client() for _ in range(4)]
        for client in clients:
            await client.send(GET)
        assert [(await client.response()).status for client in clients] == [502] * 4
        assert (pool.waiting, pool.connect_failures) == (0, 4)


async def test_a_replica_that_leaves_turns_away_those_who_wait_and_finishes_what_runs() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=ONE)
        running, waiting = await gateway.client(), await gateway.client()
        await running.send(GET)
        await until(lambda: gate.running == 1)
        await waiting.send(GET)
        await until(lambda: pool.waiting == 1)
        pool.close()
        assert (await waiting.response()).status == 503
        gate.let()
        assert (await running.response()).body == b"ok"
        await until(lambda: pool.open == 0)


async def test_a_streamed_body_waits_for_its_connection_too() -> None:
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT, buffering=False) as gateway:
        pool = connect(gateway, server.port, policy=ONE)
        first, second = await gateway.client(), await gateway.client()
        await first.send(GET)
        await until(lambda: gate.running == 1)
        await second.send(post(b"x" * 1_000_000)[:-10])
        await until(lambda: pool.waiting == 1)
        gate.let(2)
        await first.response()
        await second.send(b"x" * 10)
        assert (await second.response()).body == b"ok"
        assert len(gate.arrived[1]) == 1_000_000


async def test_who_is_told_that_its_wait_is_over_may_end_the_wait_of_another() -> None:
    """As a handler does that has the same request wait at two places."""
    gate = Gate()
    async with placed(gate) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=PoolPolicy(max_connections=1, wait_s=1.0))
        clients = [await gateway.client() for _ in range(3)]
        told: list[Exchange] = []

        def failed(exchange: Exchange, failure: Failure) -> None:
            told.append(exchange)
            for each in gateway.handler.handled[1:]:
                each.reply(error_reply(failure.status, failure.detail, failure.kind))

        gateway.handler.failed = failed  # type: ignore[method-assign]
        for at, client in enumerate(clients):
            await client.send(GET)
            await until(lambda at=at: len(gateway.handler.handled) == at + 1)  # type: ignore[misc]
        assert [(await client.response()).status for client in clients[1:]] == [503, 503]
        assert told == [gateway.handler.handled[1]]
        assert pool.turned_away == 1
        gate.let()
        await clients[0].response()
