"""A worker that hangs is ended and replaced, in whatever way it hangs; one that nobody could hear is not."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.integration.workers.conftest import Start
from tests.integration.workers.harness import REPOSITORY, Load, until

PATIENCE_S = 5
MORE = f"worker_silent_s: {PATIENCE_S}"
# Python imports it in every process whose path it is on. The handler runs in the thread of the event loop, as whatever
# blocks it by mistake would.
BLOCKS = """
import signal, time
def loop_is_blocked_here(*_):
    while True:
        time.sleep(3600)
signal.signal(signal.SIGUSR1, loop_is_blocked_here)
"""


@pytest.mark.parametrize(
    ("how", "shows_where"), [(signal.SIGUSR1, True), (signal.SIGSTOP, False)], ids=["blocked", "stopped"]
)
async def test_a_worker_that_hangs_is_ended_and_replaced_while_the_other_serves(
    start: Start, tmp_path: Path, how: signal.Signals, shows_where: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKS)
    serving = await start(MORE, {"PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(tmp_path)))})
    victim, other = [worker["pid"] for worker in await serving.settled(1)]

    os.kill(victim, how)
    await until(lambda: serving.logged("worker died"), "ended")
    pids = [worker["pid"] for worker in await serving.settled(1)]

    assert victim not in pids
    assert other in pids
    [entry] = serving.logged("worker hangs and is ended")
    assert (entry["pid"], entry["silent_s"]) == (victim, PATIENCE_S)
    assert serving.logged("worker died")[0]["how"] == "killed by SIGKILL"
    assert any("loop_is_blocked_here" in line for line in serving.other_lines) == shows_where
    async with Load(serving.port) as load:
        await load.more()
    assert set(load.outcomes) == {"200"}


async def test_a_supervisor_that_was_stopped_itself_ends_nobody(start: Start) -> None:
    serving = await start(MORE)
    pids = [worker["pid"] for worker in await serving.settled(1)]

    serving.signal(signal.SIGSTOP)
    await asyncio.sleep(PATIENCE_S + 1)
    serving.signal(signal.SIGCONT)
    # It looks again, with all that was said meanwhile still to be read.
    await asyncio.sleep(2)

    assert [worker["pid"] for worker in await serving.settled(1)] == pids
    assert not serving.logged("worker hangs and is ended")
