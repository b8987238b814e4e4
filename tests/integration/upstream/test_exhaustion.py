"""Files that have run out in this process: no replica is blamed, nobody spins, and all goes on when there are some."""

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

from gateway.feed.health import HealthMonitor, HealthPolicy
from gateway.wire.failure import FailureKind
from tests.integration.wire.harness import GET, OK, answering, until, wire

from .harness import PATIENT, kinds

_REPLICA = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(sys.argv[1].encode())
"""


class Watched:
    """A replica that the health checks have found up, or not."""

    name = "r"
    up = False

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def set_healthy(self, healthy: bool) -> None:
        self.up = healthy


@contextlib.contextmanager
def no_files() -> Iterator[None]:
    """Within this, no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_who_has_a_connection_hears_that_we_are_busy_and_no_replica_is_blamed() -> None:
    async with wire(answering(OK), timeouts=PATIENT) as gateway:
        client = await gateway.client()
        with no_files():
            message = await client.ask(GET)
        assert (message.status, kinds(gateway)) == (503, [FailureKind.exhausted])
        assert (await client.ask(GET)).body == b"ok"


async def test_a_connection_that_is_kept_serves_on() -> None:
    async with wire(answering(OK), timeouts=PATIENT) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        with no_files():
            assert (await client.ask(GET)).body == b"ok"


async def test_who_comes_meanwhile_does_not_stop_those_who_come_later() -> None:
    async with wire(answering(OK), timeouts=PATIENT) as gateway:
        client = await gateway.client()
        await client.ask(GET)
        with socket.socket() as newcomer:
            newcomer.setblocking(False)
            with no_files():
                newcomer.connect_ex(("127.0.0.1", gateway.port))
                for _ in range(20):
                    assert (await client.ask(GET)).body == b"ok"
        await until(lambda: len(gateway.server.connections) == 1)
        assert (await (await gateway.client()).ask(GET)).body == b"ok"


@contextlib.contextmanager
def replica_elsewhere() -> Iterator[int]:
    """The port of a replica in a process of its own, which has files; each request needs a connection of its own."""
    command = [sys.executable, "-c", _REPLICA, OK.decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def test_health_checks_that_get_no_file_say_nothing_about_the_replica() -> None:
    with replica_elsewhere() as port:
        replica = Watched(port)
        policy = HealthPolicy(interval_s=0.01, eject_after=1)
        monitor = HealthMonitor([(replica, policy)], clock=asyncio.get_running_loop().time)
        await monitor.start()
        try:
            await until(lambda: replica.up)
            with no_files():
                probes = monitor.record(replica).probes
                await until(lambda: monitor.record(replica).probes > probes + 3)
                assert replica.up
        finally:
            await monitor.close()
