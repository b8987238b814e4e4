"""Real sockets around the wire: scripted upstreams, raw clients, and a forwarding handler that counts what it is told.

Nothing here uses the wire's own parsing: messages are read by the small strict reader below, so that a mistake in the
wire's framing cannot hide behind the same mistake in its tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.wire.exchange import Exchange
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.forwarding import Forwarding
from gateway.wire.limits import Limits, Timeouts
from gateway.wire.message import Headers, Reply, error_document, error_reply
from gateway.wire.server import Server
from gateway.wire.upstream import Upstream

PATIENCE_S = 60.0
"""How long a test waits for what must happen; only a failing test ever waits so long."""

QUICK = Timeouts(sweep_s=0.02, drain_s=5.0, linger_s=5.0)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
ERROR_EVENT = b'data: {"error": "the stream broke"}\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def post(body: bytes, path: bytes = b"/") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (path, len(body), body)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the strict reader saw it; header names in lower case; `chunks` are the chunks of a chunked body."""

    start: bytes
    headers: Headers
    body: bytes
    chunks: tuple[bytes, ...] = ()
    trailers: tuple[bytes, ...] = ()

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    def header(self, name: bytes) -> bytes | None:
        values = self.values(name)
        assert len(values) <= 1, f"{name!r} came {len(values)} times"
        return values[0] if values else None


async def read_head(reader: asyncio.StreamReader) -> tuple[bytes, Headers]:
    """A head with lines that end in CRLF and headers spelled `name: value`."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    start, *lines = head.split(b"\r\n")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        assert colon, f"not a header: {line!r}"
        assert name == name.strip(), f"not a header: {line!r}"
        headers.append((name.lower(), value.strip()))
    return start, headers


async def read_message(reader: asyncio.StreamReader, *, to: bytes | None = None) -> Message:
    """One message. `to` is the method that a response answers, None for a request."""
    start, headers = await read_head(reader)
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    assert len(lengths) + len(codings) <= 1, f"framed more than once: {headers!r}"
    if to is not None:
        status = int(start.split(b" ")[1])
        if to == b"HEAD" or status < 200 or status in (204, 304):
            return Message(start, headers, b"")
    if codings:
        assert codings == [b"chunked"]
        chunks, trailers = await read_chunks(reader)
        return Message(start, headers, b"".join(chunks), tuple(chunks), tuple(trailers))
    if lengths:
        return Message(start, headers, await reader.readexactly(int(lengths[0])))
    return Message(start, headers, b"" if to is None else await reader.read())


async def read_chunks(reader: asyncio.StreamReader) -> tuple[list[bytes], list[bytes]]:
    chunks: list[bytes] = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        data = await reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        chunks.append(data[:-2])
    trailers = []
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        trailers.append(line[:-2])
    return chunks, trailers


class Peer:
    """One end of a TCP connection, with patience built in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Raises ConnectionError if the other side is gone."""
        try:
            self.writer.write(data)
        except RuntimeError as error:  # uvloop's word for a connection that is closed
            raise ConnectionResetError(str(error)) from error
        async with asyncio.timeout(PATIENCE_S):
            await self.writer.drain()

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def read_some(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read(1 << 20)

    async def read_until(self, end: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        """Everything until the other side closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def closed(self) -> None:
        """Wait until the other side is gone, by a close or a reset, and has said nothing more."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                assert await self.reader.read() == b""
            except ConnectionError:
                return

    async def turn(self) -> None:
        """Give the bytes written so far the time to be read alone: loopback delivers within a loop turn or two."""
        for _ in range(3):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with a reset, as a process does that dies with data unread."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Client(Peer):
    """A client of the gateway."""

    interim: tuple[Message, ...] = ()
    """What came before the last response."""

    async def response(self, to: bytes = b"GET") -> Message:
        """The next final response."""
        self.interim = ()
        async with asyncio.timeout(PATIENCE_S):
            while (message := await read_message(self.reader, to=to)).status < 200:
                self.interim = (*self.interim, message)
        return message

    async def head(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            start, headers = await read_head(self.reader)
        return Message(start, headers, b"")

    async def response_bytes(self) -> bytes:
        """The bytes of one response with a head and a body that is chunked or has a length."""
        head = await self.read_until(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head:
            return head + await self.read_until(b"\r\n0\r\n") + await self.read_until(b"\r\n\r\n")
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return head + await self.read(int(length or b"0"))

    async def ask(self, request: bytes, to: bytes = b"GET") -> Message:
        await self.send(request)
        return await self.response(to)


class Served(Peer):
    """An accepted connection of a scripted upstream; it notes the requests that it reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[Message]) -> None:
        super().__init__(reader, writer)
        self._seen = seen

    async def request(self) -> Message:
        """The next request, however long it takes to come."""
        message = await read_message(self.reader)
        self._seen.append(message)
        return message

    def read_no_more(self) -> None:
        """Whatever comes from now on stays in the kernel, so that a close meets it on its way."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def unread(self) -> None:
        """Wait until something has come that `read_no_more` leaves unread."""
        connection = self.writer.get_extra_info("socket").fileno()
        await until(lambda: bool(select.select([connection], [], [], 0)[0]))


Script = Callable[[Served], Awaitable[None]]


class ScriptedUpstream:
    """A server whose every connection runs a script; what the script raises fails the test."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.requests: list[Message] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self._writers: set[asyncio.StreamWriter] = set()

    def blocked(self) -> bool:
        """Whether something that was written is not taken."""
        return any(writer.transport.get_write_buffer_size() for writer in self._writers)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port, limit=1 << 22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            await self.script(Served(reader, writer, self.requests))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the gateway closed the connection, as it may at any time
        except BaseException as error:
            if not isinstance(error, RuntimeError) or "handler is closed" not in str(error):  # uvloop's words for it
                self._errors.append(error)
        finally:
            self._running.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._running):
            task.cancel()
        await until(lambda: not self._running)
        await self._server.wait_closed()
        for error in self._errors:
            raise error


def answering(*responses: bytes, then_close: bool = False) -> Script:
    """Read a request, give the next response (the last one again and again), for as long as the connection lasts."""

    async def script(served: Served) -> None:
        for count in range(1 << 30):
            await served.request()
            await served.send(responses[min(count, len(responses) - 1)])
            if then_close:
                return

    return script


@dataclass
class Forwarder:
    """A handler that sends each exchange to the next of its upstreams as long as the failure allows it."""

    upstreams: Sequence[Upstream] = ()
    buffering: bool = True
    on_handle: Callable[[Exchange], None] | None = None
    held: frozenset[int] = frozenset()
    """Statuses of responses to be held back."""
    on_refused: Callable[[Exchange, int, bytes], None] | None = None
    extra_headers: bytes = b""
    response_lines: bytes = b""
    handled: list[Exchange] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    refusals: list[bytes] = field(default_factory=list)
    over: list[Exchange] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def buffers(self, exchange: Exchange) -> bool:
        return self.buffering

    def handle(self, exchange: Exchange) -> None:
        assert exchange not in self.handled
        self.handled.append(exchange)
        exchange.context = 0
        self._changed.set()
        if self.on_handle is not None:
            self.on_handle(exchange)
        else:
            self.forward(exchange)

    def forward(self, exchange: Exchange) -> None:
        upstream = self.upstreams[exchange.context % len(self.upstreams)]
        exchange.forward(upstream, headers=self.extra_headers, response_lines=self.response_lines)

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        assert exchange not in self.over
        self.failures.append(failure)
        self._changed.set()
        if failure.repeatable and exchange.replayable and exchange.context < len(self.upstreams):
            if failure.kind != FailureKind.stale:
                exchange.context += 1
            if exchange.context < len(self.upstreams):
                self.forward(exchange)
                return
        exchange.reply(error_reply(failure.status, failure.detail, failure.kind))

    def holds(self, exchange: Exchange, status: int) -> bool:
        return status in self.held

    def refused(self, exchange: Exchange, status: int, message: bytes) -> None:
        assert exchange not in self.over
        self.refusals.append(message)
        self._changed.set()
        if self.on_refused is not None:
            self.on_refused(exchange, status, message)
        else:
            exchange.pass_on()

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        return ERROR_EVENT

    def cut(self, exchange: Exchange, failure: Failure) -> None:
        if exchange.withdraw():
            exchange.reply(error_reply(failure.status, failure.detail, failure.kind))
        else:
            exchange.end(failure)

    def finished(self, exchange: Exchange) -> None:
        if exchange in self.over:
            self.errors.append(AssertionError(f"finished was called twice for {exchange.target!r}"))
        self.over.append(exchange)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on what this handler was told."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


class Wire:
    """A gateway under test: a server, its handler, upstream pools, and everybody who talks to it."""

    def __init__(self, limits: Limits | None, timeouts: Timeouts, forwarding: Forwarding | None = None) -> None:
        self.handler = Forwarder()
        self.server = Server(self.handler, limits or Limits(), timeouts, forwarding)
        self.upstreams: list[ScriptedUpstream] = []
        self.pools: list[Upstream] = []
        self.port = 0
        self.listen: dict[str, Any] = {}
        """How to listen, beside the address."""
        self._clients: list[Client] = []

    async def start(self, *scripts: Script) -> None:
        self.pools = [await self.upstream(script) for script in scripts]
        self.handler.upstreams = self.pools
        _, self.port = await self.server.listen("127.0.0.1", 0, **self.listen)

    async def upstream(self, script: Script) -> Upstream:
        """A further scripted upstream and its pool."""
        scripted = ScriptedUpstream(script)
        self.upstreams.append(scripted)
        await scripted.start()
        return self.pool(scripted.port)

    def pool(self, port: int, host: str = "127.0.0.1") -> Upstream:
        pool = Upstream(host, port, self.server.timeouts)
        self.server.upstreams.add(pool)
        return pool

    @property
    def connections_made(self) -> int:
        """Connections the upstreams have seen, all together."""
        return sum(upstream.connections for upstream in self.upstreams)

    @property
    def requests(self) -> list[Message]:
        """Requests the upstreams have read, all together."""
        return [request for upstream in self.upstreams for request in upstream.requests]

    @property
    def body_bytes(self) -> int:
        """Bytes received of bodies that are not complete."""
        incoming = [connection._incoming for connection in self.server.connections]
        return sum(exchange.body_size for exchange in incoming if exchange is not None)

    async def client(self, *, receive_buffer: int = 0) -> Client:
        return self.adopt(await asyncio.open_connection("127.0.0.1", self.port, limit=receive_buffer or 1 << 22))

    def adopt(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> Client:
        """A connection to the gateway that was made in another way."""
        client = Client(*streams)
        self._clients.append(client)
        return client

    async def finished(self, count: int = 1) -> None:
        await self.handler.until(lambda: len(self.handler.over) >= count)

    async def until_idle(self, count: int) -> None:
        """Wait until so many connections are pooled."""
        await until(lambda: sum(pool.idle for pool in self.pools) == count)

    async def stop(self) -> None:
        """End everything, and check that nothing is left of it and every exchange ended once."""
        for client in self._clients:
            client.close()
        await until(lambda: not self.server.connections)
        await self.server.close()
        for scripted in self.upstreams:
            await scripted.stop()
        for client in self._clients:
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()
        assert [pool.idle for pool in self.server.upstreams] == [0] * len(self.server.upstreams)
        assert not self.handler.errors, self.handler.errors
        assert len(self.handler.over) == len(self.handler.handled)
        assert {id(exchange) for exchange in self.handler.over} == {id(exchange) for exchange in self.handler.handled}
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens, one loop turn after the other."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def wire(
    *scripts: Script,
    limits: Limits | None = None,
    timeouts: Timeouts = QUICK,
    buffering: bool = True,
    on_handle: Callable[[Exchange], None] | None = None,
    forwarding: Forwarding | None = None,
    listen: dict[str, Any] | None = None,
) -> AsyncIterator[Wire]:
    """A gateway in front of one upstream per script, checked for leaks when the test is over."""
    gateway = Wire(limits, timeouts, forwarding)
    gateway.listen = listen or {}
    gateway.handler.buffering = buffering
    gateway.handler.on_handle = on_handle
    await gateway.start(*scripts)
    try:
        yield gateway
    except BaseException:
        with contextlib.suppress(Exception):
            await gateway.stop()
        raise
    await gateway.stop()


__all__ = ["Exchange", "Reply", "error_document"]
