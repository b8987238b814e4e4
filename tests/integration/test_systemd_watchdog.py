"""`steplane serve` under systemd's watchdog: it says that it is alive, and where it stood when it is ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = """
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
default_pool: only
pools:
  only: {replicas: ["http://127.0.0.1:9"], feed: "off"}
"""
WATCHDOG = {"WATCHDOG_USEC": "200000"}


class Service:
    """`steplane serve` as systemd would start it."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        (folder / "gateway.yaml").write_text(CONFIG)
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._systemd.bind(str(folder / "notify"))
        self._systemd.settimeout(60)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "-c", str(folder / "gateway.yaml")],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "NOTIFY_SOCKET": str(folder / "notify")} | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self) -> str:
        """The next that systemd hears of it."""
        return self._systemd.recv(100).decode()

    def end(self, number: signal.Signals) -> str:
        """Ends it; what it had written to standard error."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._systemd.close()


@pytest.fixture
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, request.param)
    yield service
    service.close()


@pytest.mark.parametrize("service", [WATCHDOG], indirect=True)
def test_it_says_again_and_again_that_it_is_alive_and_at_the_end_where_it_stood(service: Service) -> None:
    said = {service.said()}
    while "READY=1" not in said:
        said.add(service.said())
    assert [service.said() for _ in range(3)] == ["WATCHDOG=1"] * 3

    words = service.end(signal.SIGABRT)  # what systemd sends to a service that it misses

    assert service.process.returncode == -signal.SIGABRT
    assert "in run_forever" in words or "uvloop" in words


@pytest.mark.parametrize("service", [{}, WATCHDOG | {"WATCHDOG_PID": "1"}], indirect=True, ids=["nobody", "another"])
def test_where_nobody_watches_it_says_nothing_of_it(service: Service) -> None:
    assert service.said() == "READY=1"
    service.process.send_signal(signal.SIGTERM)
    assert service.said() == "STOPPING=1"
