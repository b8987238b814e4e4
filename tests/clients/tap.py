"""A wire tap in front of a server: relays bytes untouched and shows the exchanges that passed.

Put between the gateway and an engine, it tells what the engine really got and sent, ids and times included.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import httptools

from tests.clients.exchange import Exchange


class Tap:
    """What has passed so far. `url` is where clients of the tapped server connect."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections: list[_Connection] = []

    def open(self, client: socket.socket, server: socket.socket) -> None:
        """Relay between two sockets until either side is done."""
        connection = _Connection(client, server)
        self._connections.append(connection)
        connection.start()

    def exchanges(self) -> list[Exchange]:
        """Complete exchanges, connection by connection."""
        return [exchange for connection in self._connections for exchange in connection.exchanges()]


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """A tap in front of the server at `url` (http://HOST:PORT)."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tap = Tap(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def accept() -> None:
            with suppress(OSError):  # the listener was closed: the block has ended
                while True:
                    client, _ = listener.accept()
                    tap.open(client, socket.create_connection((host, int(port))))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield tap
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._sent = bytearray()
        self._received = bytearray()

    def start(self) -> None:
        for source, sink, copy in (
            (self._client, self._server, self._sent),
            (self._server, self._client, self._received),
        ):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pump, args=(source, sink, copy), daemon=True).start()

    def exchanges(self) -> list[Exchange]:
        requests = _Messages(httptools.HttpRequestParser, bytes(self._sent)).complete
        responses = _Messages(httptools.HttpResponseParser, bytes(self._received)).complete
        return [
            Exchange(request.target, request.body, response.status, tuple(response.headers), response.body)
            for request, response in zip(requests, responses, strict=False)  # the last may be under way
        ]


def _pump(source: socket.socket, sink: socket.socket, copy: bytearray) -> None:
    with suppress(OSError):  # either side may break off
        while data := source.recv(65536):
            copy += data  # first: who sees the bytes arrive may ask for them at once
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@dataclass(slots=True)
class _Message:
    target: str = ""
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class _Messages:
    """The complete HTTP messages of one direction; the object that httptools calls back."""

    def __init__(self, parser: type, data: bytes) -> None:
        self.complete: list[_Message] = []
        self._message = _Message()
        self._parser = parser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._message = _Message()

    def on_url(self, url: bytes) -> None:
        self._message.target += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._message.headers.append((name.decode().lower(), value.decode()))

    def on_headers_complete(self) -> None:
        if isinstance(self._parser, httptools.HttpRequestParser):
            self._message.target = f"{self._parser.get_method().decode()} {self._message.target}"
        else:
            self._message.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._message.body += body

    def on_message_complete(self) -> None:
        self.complete.append(self._message)
