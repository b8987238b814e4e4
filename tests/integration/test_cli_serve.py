"""`steplane serve` as a process, in front of a replica of the test's own."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(REPOSITORY)}


class Replica(ThreadingHTTPServer):
    """Healthy; answers each POST with one event, and with the end of the stream when the test says so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.may_finish = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A gateway that is gone in mid-stream is what some tests are about."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/abort_request":
            self.do_GET()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._event(b"data: first\n\n")
        self.server.may_finish.wait()
        self._event(b"data: last\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Serving:
    """A running `steplane serve`."""

    def __init__(self, config: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.cli", "serve", "-c", str(config)],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().replace(",", "").replace(";", "").split()
        self.client = httpx.Client(base_url=words[3], timeout=None)
        self.admin = httpx.Client(base_url=words[6], timeout=None)

    def wait_for_log(self, event: str) -> dict[str, object]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, object] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"ended without a log entry {event!r}")

    def ready(self) -> httpx.Response:
        return self.admin.get("/readyz")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.client.close()
        self.admin.close()


@pytest.fixture
def replica() -> Iterator[Replica]:
    replica = Replica()
    yield replica
    replica.may_finish.set()
    replica.shutdown()
    replica.server_close()


@pytest.fixture
def serving(replica: Replica, tmp_path: Path) -> Iterator[Serving]:
    config = tmp_path / "f.yaml"
    config.write_text(f"""
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
default_pool: only
pools:
  only: {{replicas: [{{url: "{replica.url}", name: r1}}]}}
""")
    serving = Serving(config)
    serving.wait_for_log("replica is up")
    yield serving
    serving.end()


CHAT = {"messages": [{"role": "user", "content": "hello"}], "stream": True}


def test_it_serves_and_says_where_each_request_went(serving: Serving, replica: Replica) -> None:
    replica.may_finish.set()

    reply = serving.client.post("/v1/chat/completions", json=CHAT)

    assert reply.text == "data: first\n\ndata: last\n\n"
    assert reply.headers["x-steplane-pool"] == "only"
    assert reply.headers["x-steplane-route"] == "default"
    assert reply.headers["x-steplane-replica"] == "r1"
    assert serving.ready().json()["ready"] is True
    assert 'steplane_requests_total{pool="only",rule="default",status="2xx"} 1.0' in serving.admin.get("/metrics").text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None], ids=["SIGTERM", "SIGINT", "API"])
def test_a_request_for_the_end_lets_running_streams_finish_and_takes_nothing_new(
    serving: Serving, replica: Replica, number: signal.Signals | None
) -> None:
    with serving.client.stream("POST", "/v1/chat/completions", json=CHAT) as reply:
        chunks = reply.iter_text()
        assert next(chunks) == "data: first\n\n"

        if number is None:
            assert serving.admin.post("/api/v1/drain").status_code == 202
        else:
            serving.process.send_signal(number)
        serving.wait_for_log("draining")
        while (readiness := serving.ready()).status_code != 503:
            pass
        assert readiness.json()["reason"] == "draining"
        address = serving.client.base_url
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port or 80))

        replica.may_finish.set()
        assert "".join(chunks) == "data: last\n\n"

    assert serving.process.wait() == 0


def test_a_second_signal_ends_it_at_once(serving: Serving) -> None:
    with serving.client.stream("POST", "/v1/chat/completions", json=CHAT) as reply:
        chunks = reply.iter_text()
        assert next(chunks) == "data: first\n\n"
        serving.process.send_signal(signal.SIGTERM)
        serving.wait_for_log("draining")

        serving.process.send_signal(signal.SIGTERM)

        assert serving.process.wait() == 128 + signal.SIGTERM
        with pytest.raises(httpx.RemoteProtocolError):
            next(chunks)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", *arguments],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("taken", ["listen", "admin"])
def test_a_port_that_is_taken_is_one_line_with_exit_code_1(tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = {name: other.getsockname()[1] if name == taken else 0 for name in ("listen", "admin")}
        config = tmp_path / "f.yaml"
        config.write_text(f"""
listen: 127.0.0.1:{port["listen"]}
admin: {{listen: "127.0.0.1:{port["admin"]}"}}
default_pool: only
pools:
  only: {{replicas: [http://127.0.0.1:1]}}
""")
        ended = run("serve", "-c", str(config))

        assert ended.returncode == 1
        assert ended.stdout == ""
        assert ended.stderr.count("\n") == 1
        assert str(other.getsockname()[1]) in ended.stderr
        assert "change `listen` or `admin.listen`" in ended.stderr


def test_a_bad_configuration_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "f.yaml"
    config.write_text("default_pool: a\npools: {}\n")

    ended = run("serve", "-c", str(config))

    assert ended.returncode == 1
    assert f"{config}:2:8: pools: expected at least 1 entry, found an empty mapping" in ended.stderr


def test_stdin_and_a_pipe_work_for_explain() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "explain", "-", "--json"],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        input=json.dumps(CHAT | {"ebnf": 'root ::= "a"'}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0
    assert json.loads(ended.stdout)["pool"] == "quarantine"
