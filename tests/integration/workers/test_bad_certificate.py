"""A certificate that became unfit while workers run, as when it is being renewed, ends none that serves."""

import os
import signal
from pathlib import Path

import aiohttp

from tests.integration.wire.certificates import make_authority
from tests.integration.workers.harness import PATIENCE_S, Replica, Serving, until


async def test_a_worker_takes_the_clients_of_one_that_died_though_the_certificate_on_disk_is_broken(
    tmp_path: Path,
) -> None:
    authority = make_authority(tmp_path)
    certificate, key = authority.sign("server")
    good = certificate.read_bytes()
    trusting = authority.trusting()
    async with Replica() as replica:
        serving = Serving(tmp_path, replica)
        tls = f"{{address: 127.0.0.1:0, tls: {{certificate: {certificate}, key: {key}}}}}"
        serving.config.write_text(serving.config.read_text().replace("listen: 127.0.0.1:0", f"listen: {tls}"))
        try:
            await serving.start()
            first, second = [worker["pid"] for worker in await serving.settled(1)]
            certificate.write_bytes(b"half wri")
            os.kill(first, signal.SIGKILL)
            await until(lambda: any(each["pid"] == first for each in serving.logged("worker died")), "it is missed")
            for _ in range(10):
                # Each on a connection of its own, which the system gives to either socket.
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session,
                    session.get(f"https://localhost:{serving.port}/health", ssl=trusting) as answer,
                ):
                    assert answer.status == 200
            assert second in await serving.pids()
            certificate.write_bytes(good)
            assert second in [worker["pid"] for worker in await serving.settled(1)]
        finally:
            code = await serving.end()
        assert code == 0
