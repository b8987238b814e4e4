"""An engine that its own feed says has ended is warmed up anew, though no probe has missed it."""

from tests.integration.gateway.harness import ok
from tests.integration.loop.harness import Replica, stage
from tests.integration.wire.harness import Message, Served, until

GRAMMAR = {"response_format": {"type": "json_object"}}


async def test_a_replica_whose_feed_speaks_of_a_new_engine_is_warmed_up() -> None:
    fed: list[str] = []

    async def answer(served: Served, message: Message) -> None:
        if message.header(b"x-steplane-warm-up") is not None:
            fed.append((message.header(b"host") or b"").decode())
        await ok(served, message)

    pools = {"interactive": [Replica("a", answer), Replica("b", answer)]}
    async with stage(pools, options={"interactive": {"warm_up": {}}}) as running:
        for _ in range(2):
            assert (await running.chat(**GRAMMAR)).status == 200
        assert fed == []
        pools["interactive"][0].says.reboot()
        await until(lambda: len(fed) == 1)
        assert pools["interactive"][0].url == f"http://{fed[0]}"
        await running.reaches("steplane_warmups_total", 1, pool="interactive", outcome="done")
        assert running.available("a")
        assert not running.barred
