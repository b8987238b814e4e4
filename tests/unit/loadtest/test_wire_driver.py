"""The C driver of the wire bench: what it sends, and that it reads every framing it will meet."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.wire import driver, workload
from loadtest.wire.workload import KINDS, Kind

CORE = min(os.sched_getaffinity(0))
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
LONG_ENOUGH = (0.1, 1.0, 10.0)
"""Seconds of a run, until it has done what is to be looked at: on a busy machine the first may do hardly anything."""
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver.build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def clients(binary: Path) -> Iterator[driver.Driver]:
    with driver.Driver(binary, CORE, 2) as running:
        yield running


@pytest.fixture
def requests(tmp_path: Path) -> Callable[[Kind], Path]:
    def write(kind: Kind) -> Path:
        path = tmp_path / f"{kind.name}.requests"
        workload.write_requests(kind, "127.0.0.1", path)
        return path

    return write


def read_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1]
    )
    while len(body) < length:
        body += client.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[tuple[int, list[bytes]]]:
    """A server for one connection at a time that keeps each request and lets `answer` respond to it."""
    seen: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                try:
                    while request := read_request(client):
                        seen.append(request)
                        answer(client)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_goes_round_between_its_own_clients_and_engines(
    clients: driver.Driver, requests: Callable[[Kind], Path], kind: Kind
) -> None:
    for port in clients.ports:
        for seconds in LONG_ENOUGH:
            load = clients.run(port, requests(kind), connections=4, seconds=seconds, rate=kind.rate)
            if load.requests >= 4:
                break
        assert (load.errors, load.first_error, load.reconnects) == (0, "", 0)
        assert load.requests >= 4
        assert load.latency_us is not None
        assert load.latency_us.p50 <= load.latency_us.p99 <= load.latency_us.max
        assert load.events == load.requests * (kind.chunks + 1 if kind.chunks else 0)
        assert (load.event_delay_us is not None) == bool(kind.chunks)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_requests_are_well_formed_and_no_two_are_alike(
    clients: driver.Driver, requests: Callable[[Kind], Path], kind: Kind
) -> None:
    reply = SSE + b"0\r\n\r\n" if kind.chunks else OK
    with serving(lambda client: client.sendall(reply)) as (port, seen):
        for seconds in LONG_ENOUGH:
            seen.clear()
            load = clients.run(port, requests(kind), connections=1, seconds=seconds)
            if len(seen) > 20:
                break
    assert load.errors == 0
    assert len(seen) == load.requests
    assert len(set(seen)) == len(seen)
    for request in seen:
        head, _, body = request.partition(b"\r\n\r\n")
        parsed = json.loads(body)
        assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: ")
        assert workload.UNIQUE.encode() not in request
        assert ("response_format" in parsed) == kind.schema
        assert parsed.get("stream", False) == bool(kind.chunks)
        assert (b"traceparent: " in head) == kind.traced
    assert len({len(request) for request in seen[:40]}) > 10
    assert all(700 < len(request.partition(b"\r\n\r\n")[2]) < 2048 for request in seen)


def test_a_paced_run_keeps_below_its_rate(clients: driver.Driver, requests: Callable[[Kind], Path]) -> None:
    load = clients.run(clients.ports[0], requests(KINDS[0]), connections=4, seconds=0.2, rate=200)
    assert load.errors == 0
    assert load.requests <= 44


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_stream_cut_at_any_byte_is_read_whole(
    clients: driver.Driver, requests: Callable[[Kind], Path], size: int
) -> None:
    events = [b"data: {}\n\n", b"event: x\ndata: 1\n\n", b"data: " + b"a" * 300 + b"\n\n", b"data: [DONE]\n\n"]
    body = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    stream = SSE + body + b"0\r\nx-trailer: 1\r\n\r\n"

    def answer(client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(stream), size):
            client.sendall(stream[at : at + size])

    with serving(answer) as (port, _):
        load = clients.run(port, requests(KINDS[4]), connections=1, seconds=0.05)
    assert load.errors == 0
    assert load.events == load.requests * len(events)


def test_events_that_come_together_are_counted_as_coalesced(
    clients: driver.Driver, requests: Callable[[Kind], Path]
) -> None:
    stream = SSE + b"1e\r\n" + b"data: {}\n\n" * 3 + b"\r\n0\r\n\r\n"
    with serving(lambda client: client.sendall(stream)) as (port, _):
        load = clients.run(port, requests(KINDS[4]), connections=1, seconds=0.05)
    assert load.events == 3 * load.requests
    assert load.coalesced == 2 * load.requests


def close_without_answer(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda client: client.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), "HTTP/1.1 503 Busy"),
        (lambda client: client.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), "neither content-length nor chunked"),
        (lambda client: client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "does not begin with HTTP/1.1"),
        (lambda client: client.sendall(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 9000), "head is too long"),
        (close_without_answer, "closed in the middle of a response"),
    ],
)
def test_what_is_not_a_good_response_is_an_error(
    clients: driver.Driver,
    requests: Callable[[Kind], Path],
    answer: Callable[[socket.socket], None],
    why: str,
) -> None:
    with serving(answer) as (port, _):
        load = clients.run(port, requests(KINDS[0]), connections=1, seconds=0.05)
    assert load.requests == 0
    assert load.errors > 0
    assert why in load.first_error


def test_a_connection_that_the_server_closes_is_opened_again(
    clients: driver.Driver, requests: Callable[[Kind], Path]
) -> None:
    reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    with serving(lambda client: client.sendall(reply)) as (port, _):
        load = clients.run(port, requests(KINDS[0]), connections=1, seconds=0.05)
    assert load.errors == 0
    assert load.reconnects == load.requests


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nx: " + b"a" * 70000, b"431"),
    ],
)
def test_the_engine_refuses_what_it_does_not_frame(clients: driver.Driver, head: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", clients.ports[0])) as client:
        client.sendall(head)
        assert client.recv(65536).split()[1] == status


def test_the_engine_answers_pipelined_requests_in_order(clients: driver.Driver) -> None:
    get = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", clients.ports[0])) as client:
        client.sendall(get + get + get.replace(b"host: x", b"connection: close"))
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3


@pytest.mark.parametrize("path", ["/v1/models", "/server_info", "/health"])
def test_the_engine_tells_routers_about_its_model(clients: driver.Driver, path: str) -> None:
    with socket.create_connection(("127.0.0.1", clients.ports[1])) as client:
        client.sendall(b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["data"][0]["id"] == "bench"


def test_the_driver_is_not_compiled_again_without_need(binary: Path) -> None:
    before = binary.stat().st_mtime_ns
    assert driver.build(binary.parent) == binary
    assert binary.stat().st_mtime_ns == before


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(driver.DriverError, match="no C compiler"):
        driver.build(tmp_path / "build")
