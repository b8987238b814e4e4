"""How several workers end: in good order, at once, and when their supervisor is no more."""

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.workers.conftest import Start
from tests.integration.workers.harness import Replica, open_stream, until


async def test_the_end_takes_clients_for_a_while_finishes_streams_and_is_told_at_once(
    start: Start, replica: Replica
) -> None:
    serving = await start("timeouts: {drain_delay_s: 5, drain_s: 30}")
    replica.may_end.clear()
    async with open_stream(serving.port) as running:
        await running.readuntil(b"data: first\n\n")
        status, _ = await serving.post("/api/v1/drain")
        assert status == 202
        while (readiness := await serving.get("/readyz"))[0] != 503:
            pass
        assert readiness[1]["reason"] == "draining"
        async with open_stream(serving.port) as late:
            assert b"connection: close" in (await late.readuntil(b"\r\n\r\n")).lower()
            replica.may_end.set()
            assert b"data: last" in await late.read()
        assert b"data: last" in await running.readuntil(b"0\r\n\r\n")
    assert await serving.over() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", serving.port))


async def test_a_second_signal_ends_all_at_once_and_systemd_hears_of_each_step(
    start: Start, replica: Replica, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        serving = await start(environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert systemd.recv(100) == b"READY=1"
        workers = await serving.pids()
        replica.may_end.clear()
        async with open_stream(serving.port) as running:
            await running.readuntil(b"data: first\n\n")
            serving.signal(signal.SIGTERM)
            assert await asyncio.to_thread(systemd.recv, 100) == b"STOPPING=1"
            serving.signal(signal.SIGTERM)
            assert await serving.over() == 128 + signal.SIGTERM
    await until(lambda: not any(map(lives, workers)), "all gone")


async def test_an_end_in_the_middle_of_a_renewal_ends_the_old_and_the_new(start: Start, replica: Replica) -> None:
    serving = await start()
    replica.may_end.clear()
    async with open_stream(serving.port) as running:
        await running.readuntil(b"data: first\n\n")
        serving.signal(signal.SIGUSR2)
        # The one that streams has all the time that it needs, as long as others take the clients.
        await until(lambda: serving.logged("workers renewed"), "renewed")
        serving.signal(signal.SIGUSR2)
        await until(lambda: len(serving.logged("worker started")) >= 5, "again, and not done")
        serving.signal(signal.SIGTERM)
        await until(lambda: serving.logged("draining"), "draining")
        replica.may_end.set()
        assert b"data: last" in await running.readuntil(b"0\r\n\r\n")
    assert await serving.over() == 0
    assert not any(lives(entry["pid"]) for entry in serving.logged("worker started"))


async def test_workers_whose_supervisor_was_killed_finish_what_runs_and_go(start: Start, replica: Replica) -> None:
    serving = await start()
    workers = await serving.pids()
    _, state = await serving.get("/api/v1/state")
    folder = Path(state["store"]["address"]).parent
    assert folder.is_dir()
    replica.may_end.clear()
    async with open_stream(serving.port) as running:
        await running.readuntil(b"data: first\n\n")
        serving.signal(signal.SIGKILL)
        # The one without anything to finish goes first.
        await until(lambda: not all(map(lives, workers)), "one gone")
        replica.may_end.set()
        assert b"data: last" in await running.readuntil(b"0\r\n\r\n")
    await until(lambda: not any(map(lives, workers)), "all gone")
    assert not folder.exists()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
