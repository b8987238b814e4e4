"""A server that closes, resets and dawdles, clients that leave, few connections: bounds hold and nobody is lost."""

import asyncio
import random
from collections import Counter

import pytest

from gateway.wire.exchange import Exchange
from gateway.wire.failure import FailureKind
from gateway.wire.poolpolicy import PoolPolicy
from tests.integration.wire.harness import OK, PATIENCE_S, Served, Wire, post, until, wire

from .harness import PATIENT, connect, kinds, placed

_MOST = 3
_CLIENTS = 20
_REQUESTS = 15


@pytest.mark.parametrize("seed", range(4))
async def test_under_chaos_no_bound_is_broken_and_every_request_is_answered_and_read_once(seed: int) -> None:
    chance = random.Random(seed)

    async def script(served: Served) -> None:
        while True:
            await served.request()
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            luck = chance.random()
            if luck < 0.1:
                return  # it has read the request, and nobody shall write it again
            await served.send(OK)
            if luck < 0.2:
                served.reset()
            if luck < 0.4:
                return  # as the next request may be on its way

    policy = PoolPolicy(max_connections=_MOST, wait_s=PATIENCE_S, min_idle=1, max_requests_per_connection=5)
    async with placed(script) as server, wire(timeouts=PATIENT) as gateway:
        pool = connect(gateway, server.port, policy=policy)
        most = 0
        forward = gateway.handler.forward

        def watched(exchange: Exchange) -> None:
            nonlocal most
            forward(exchange)
            most = max(most, pool.open + len(pool._dialling))

        gateway.handler.forward = watched  # type: ignore[method-assign]
        answered = sum(await asyncio.gather(*(client_of(gateway, number, chance) for number in range(_CLIENTS))))
        await until(lambda: len(gateway.handler.over) == len(gateway.handler.handled))
        assert answered > _CLIENTS
        assert most == _MOST
        assert pool.waiting == pool.turned_away == 0
        assert set(kinds(gateway)) <= {FailureKind.stale, FailureKind.closed_early}
        assert max(Counter(message.body for message in server.requests).values()) == 1


async def client_of(gateway: Wire, number: int, chance: random.Random) -> int:
    """One client's requests, each with a body of its own; returns how many were answered. It may leave early."""
    client = await gateway.client()
    for count in range(_REQUESTS):
        await client.send(post(b"%d-%d" % (number, count)))
        if chance.random() < 0.03:
            await asyncio.sleep(0)
            client.close()
            return count
        assert (await client.response()).status in (200, 502)
    return _REQUESTS
