"""SIGHUP, as the process of `steplane serve` takes it."""

import json
import signal
import socket
import sys
from pathlib import Path

import httpx

from tests.clients.processes import answers, free_port, running


def test_a_hangup_loads_the_configuration_again_and_ends_nothing(tmp_path: Path) -> None:
    port, admin = free_port(), free_port()
    file = tmp_path / "gateway.yaml"

    def write(budget_us: int) -> None:
        pool = {"replicas": ["http://127.0.0.1:1"], "engine": "other", "step_budget_us": budget_us}
        document = {"listen": f"127.0.0.1:{port}", "admin": {"listen": f"127.0.0.1:{admin}"}}
        # A connection waits through it, however long that takes on a busy machine.
        timeouts = {"header_s": 600, "keepalive_s": 600}
        file.write_text(json.dumps({**document, "timeouts": timeouts, "default_pool": "a", "pools": {"a": pool}}))

    write(100)
    command = [sys.executable, "-m", "gateway.cli", "serve", "-c", str(file)]
    url = f"http://127.0.0.1:{admin}"
    with (
        running("reload", command, ready=answers(f"{url}/healthz"), start_s=60) as process,
        httpx.Client(base_url=url, timeout=30) as client,
        socket.create_connection(("127.0.0.1", port)) as waiting,
    ):
        write(200)
        process.send_signal(signal.SIGHUP)

        while (shown := client.get("/api/v1/config").json())["last_reload"] is None:
            pass
        assert (shown["last_reload"]["outcome"], shown["last_reload"]["trigger"]) == ("applied", "signal")
        assert client.get("/api/v1/pools").json()["pools"][0]["step_budget_us"] == 200
        waiting.sendall(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n")
        assert waiting.recv(12) == b"HTTP/1.1 503"
