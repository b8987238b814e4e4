"""A pool that comes with a reload: its budget is shared out as that of every other."""

import asyncio
import signal

from tests.integration.workers.conftest import Start
from tests.integration.workers.harness import PATIENCE_S, Serving, until

SECOND = """\
  second:
    replicas: [{url: "http://127.0.0.1:9", name: r2}]
    feed: off
    step_budget_us: 1000
"""


async def budgets(serving: Serving) -> dict[str, float]:
    """What all workers together may use, by pool."""
    _, document = await serving.get("/api/v1/pools")
    return {pool["name"]: pool["step_budget_us"] for pool in document["pools"]}


async def test_a_pool_that_a_reload_brings_gets_its_budget_once_and_not_once_for_each_worker(start: Start) -> None:
    serving = await start()
    serving.config.write_text(serving.config.read_text() + SECOND)
    serving.signal(signal.SIGHUP)
    await until(lambda: len(serving.logged("config_reload")) == 2, "both have read it")
    async with asyncio.timeout(PATIENCE_S):
        while await budgets(serving) != {"only": 1000, "second": 1000}:  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0.02)
