"""The upstream side: one server's pool of connections, and the connection that reads a response for an exchange.

A response is passed on as the bytes it came in: its head is rewritten, its body and framing are written to the client
in the loop turn in which they were read. The parser runs beside, to know where the response ends; it has no `on_body`
on purpose, so that it copies nothing. Only a client of HTTP/1.0 gets another body than the upstream sent (no chunks).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

import httptools

from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import HOP_BY_HOP, LAST_CHUNK, Headers, chunk, connection_options, status_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.wire.exchange import Exchange
    from gateway.wire.limits import Timeouts

_MAX_HEAD_BYTES = 256 * 1024
_BODILESS = frozenset((204, 304))


class Upstream:
    """One server address and its idle connections, the most recently used on top."""

    def __init__(
        self, host: str, port: int, timeouts: Timeouts, *, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.name = name or f"{host}:{port}"
        self._tls = tls
        self._timeouts = timeouts
        self._idle: dict[UpstreamConnection, float] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False

    @property
    def idle(self) -> int:
        """Pooled connections without an exchange."""
        return len(self._idle)

    def take(self) -> UpstreamConnection | None:
        """An idle connection that is not past its time, or None."""
        while self._idle:
            connection, since = self._idle.popitem()
            if self._loop.time() - since < self._timeouts.upstream_idle_s and not connection.is_closing():
                return connection
            connection.drop()
        return None

    def release(self, connection: UpstreamConnection) -> None:
        """A connection is done with its exchange and may serve another."""
        if self._closed:
            connection.drop()
        else:
            self._idle[connection] = self._loop.time()

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection is closed."""
        self._idle.pop(connection, None)

    def connect(self, exchange: Exchange) -> asyncio.Task[None]:
        """Open a connection for `exchange`, which is told of the outcome unless it cancels the returned task."""
        return self._loop.create_task(self._connect(exchange))

    def sweep(self, now: float) -> None:
        """Close connections that idled too long; the oldest are at the bottom."""
        for connection, since in list(self._idle.items()):
            if now - since < self._timeouts.upstream_idle_s:
                return
            del self._idle[connection]
            connection.drop()

    def close(self) -> None:
        """Close idle connections; those in use close when their exchange is done."""
        self._closed = True
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.drop()

    async def _connect(self, exchange: Exchange) -> None:
        connection = UpstreamConnection(self)
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                await self._loop.create_connection(lambda: connection, self.host, self.port, ssl=self._tls)
        except asyncio.CancelledError:
            connection.abandon()
            raise
        except TimeoutError:
            detail = f"{self.name} did not accept a connection within {self._timeouts.connect_s:g} s"
            exchange.connect_failed(Failure(FailureKind.connect_timeout, detail))
        except (OSError, ssl.SSLError) as error:
            detail = f"no connection to {self.name}: {error.strerror or error}"
            exchange.connect_failed(Failure(FailureKind.connect_failed, detail))
        else:
            exchange.attach(connection)


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream, serving one exchange at a time. Also the callbacks of its response parser."""

    __slots__ = (
        "_bare",
        "_body_parts",
        "_complete",
        "_excess",
        "_exchange",
        "_head",
        "_head_complete",
        "_headers",
        "_interim_heads",
        "_keep_alive",
        "_last_read",
        "_parser",
        "_relaying",
        "_reused",
        "_sse",
        "_transport",
        "_until_close",
        "_upstream",
        "_write",
    )

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport
        self._exchange: Exchange | None = None
        self._reused = False
        self._parser = httptools.HttpResponseParser(self)
        self._body_parts: list[bytes] | None = None
        self._write: Any = None
        self._reset()

    def _reset(self) -> None:
        self._head = b""
        self._headers: Headers = []
        self._head_complete = False
        self._interim_heads = 0
        self._complete = False
        self._excess = False
        self._keep_alive = False
        self._relaying = False
        self._until_close = False
        self._bare = False
        self._sse = False
        self._last_read = b""

    # --- for the exchange and the pool

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def begin(self, exchange: Exchange, data: Sequence[bytes]) -> None:
        """Write a request, or as much of it as there is."""
        self._exchange = exchange
        self._write = exchange.client.transport.write
        if exchange.http10:
            self._body_parts = []
            self._parser = httptools.HttpResponseParser(_WithBody(self, self._body_parts))
        if exchange.client.write_paused:
            self._transport.pause_reading()
        if len(data) == 1:
            self._transport.write(data[0])
        else:
            self._transport.writelines(data)

    def write_body(self, data: bytes) -> None:
        """Write a further piece of the request body, framed."""
        self._transport.write(data)

    def pause(self) -> None:
        """The client does not keep up."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """The client takes data again."""
        self._transport.resume_reading()

    def drop(self) -> None:
        """Close at once; whatever the upstream still computes for us, it learns that nobody listens."""
        self._exchange = None
        self._transport.abort()

    def abandon(self) -> None:
        """Close, if the connection was made at all."""
        if hasattr(self, "_transport"):
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self._transport.abort()  # nobody asked: nothing it says can be trusted
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(FailureKind.bad_response, "answered with an upgrade that was not asked for")
            return
        except httptools.HttpParserError as error:
            if not self._complete:
                self._fail(FailureKind.bad_response, f"sent invalid HTTP ({error})")
                return
            self._excess = True
        if self._excess:
            self._fail(FailureKind.bad_response, "sent more than its response")
        elif self._relaying:
            self._relay(exchange, data)
        else:
            self._head += data
            if self._head_complete:
                self._respond(exchange)
            elif len(self._head) > _MAX_HEAD_BYTES:
                self._fail(FailureKind.bad_response, f"sent a header of more than {_MAX_HEAD_BYTES} bytes")

    def eof_received(self) -> None:
        """Nothing to do: the transport closes itself and `connection_lost` follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self._exchange
        if exchange is None:
            self._upstream.forget(self)
        elif self._until_close and exc is None:
            self._complete = True
            self._relay(exchange, b"")
        elif self._relaying:
            self._fail(FailureKind.died, "closed the connection in mid-response")
        elif self._reused and not self._head:
            self._fail(FailureKind.stale, "closed a kept-alive connection as it was reused")
        else:
            self._fail(FailureKind.closed_early, "closed the connection without a response")

    def pause_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.client.pause_body()

    def resume_writing(self) -> None:
        if self._exchange is not None:
            self._exchange.client.resume_body()

    # --- httptools callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self._headers.clear()
            self._interim_heads += 1
        else:
            self._head_complete = True
            exchange = self._exchange
            if exchange is not None and exchange.method == b"HEAD":
                self._complete = True

    def on_message_complete(self) -> None:
        if self._head_complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()  # cleared right after this callback

    # --- the response

    def _respond(self, exchange: Exchange) -> None:
        """The head is complete: write ours, and what has come of the body."""
        client = exchange.client
        status = self._parser.get_status_code()
        length = chunked = False
        lines: list[bytes] = []
        options: list[bytes] = []
        for name, value in self._headers:
            lower = name.lower()
            if lower in _HANDLED:
                if lower == b"content-length":
                    length = True
                elif lower == b"transfer-encoding":
                    if value.strip().lower() != b"chunked":
                        self._fail(FailureKind.bad_response, "used a transfer coding other than chunked")
                        return
                    chunked = True
                elif lower == b"connection":
                    options.append(value)
                elif lower == b"content-type":
                    self._sse = value.startswith(b"text/event-stream")
                if lower in _DROPPED:
                    continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if options and (named := connection_options(options) - _PLAIN_OPTIONS):
            lines = [line for line in lines if line.partition(b":")[0].lower() not in named]
        bodiless = self._complete_without_body(status, exchange)
        keep_alive = exchange.keep_alive and exchange.received and not client.draining
        if bodiless:
            pass
        elif chunked and exchange.http10:
            self._bare = True
            keep_alive = False
        elif chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif not length:
            self._until_close = True
            if exchange.http10:
                keep_alive = False
            else:
                lines.append(b"transfer-encoding: chunked\r\n")
        if not keep_alive:
            exchange.keep_alive = False
            lines.append(b"connection: close\r\n")
        elif exchange.http10:
            lines.append(b"connection: keep-alive\r\n")
        body = self._body_so_far()
        if bodiless and body:
            self._fail(FailureKind.bad_response, "sent a body where none is allowed")
            return
        exchange.begin_response(status)
        lines.append(exchange.response_lines)
        self._head = b""
        self._relaying = True
        self._relay(exchange, body, b"%b%b\r\n" % (status_line(status), b"".join(lines)))

    def _complete_without_body(self, status: int, exchange: Exchange) -> bool:
        if status in _BODILESS or exchange.method == b"HEAD":
            self._complete = True
            return True
        return False

    def _body_so_far(self) -> bytes:
        """What follows the head (and any interim heads, which have no body) in the bytes read so far."""
        end = 0
        for _ in range(self._interim_heads + 1):
            end = self._head.index(b"\r\n\r\n", end) + 4
        return self._head[end:]

    def _relay(self, exchange: Exchange, data: bytes, head: bytes = b"") -> None:
        """Write on one read. Hot: once per read of every stream."""
        self._last_read = data
        if self._bare or self._until_close:
            data = self._reframed(exchange, data)
        if head:
            data = head + data
        if data:
            self._write(data)
            exchange.bytes_out += len(data)
        if self._complete:
            self._end(exchange)
        else:
            client = exchange.client
            client.deadline = client.now() + client.timeouts.stream_idle_s

    def _reframed(self, exchange: Exchange, data: bytes) -> bytes:
        """The body for a client that cannot have it as it came."""
        if self._bare:
            parts = self._body_parts
            assert parts is not None
            data = b"".join(parts)
            parts.clear()
            return data
        if exchange.http10:
            return data
        if data:
            data = chunk(data)
        return data + LAST_CHUNK if self._complete else data

    def _end(self, exchange: Exchange) -> None:
        """The response is complete."""
        self._exchange = None
        reusable = (
            exchange.received
            and not self._until_close
            and exchange.method != b"HEAD"
            and self._keep_alive
            and not self._transport.is_closing()
        )
        if reusable:
            if self._body_parts is not None:
                self._body_parts = None
                self._parser = httptools.HttpResponseParser(self)
            if exchange.client.write_paused:
                self._transport.resume_reading()
            self._reused = True
            self._reset()
            self._upstream.release(self)
        else:
            self._transport.abort()
        exchange.complete()

    def _fail(self, kind: FailureKind, detail: str) -> None:
        exchange, self._exchange = self._exchange, None
        self._transport.abort()
        if exchange is not None:
            exchange.upstream_failed(self, Failure(kind, f"{self._upstream.name} {detail}"))

    def at_event_boundary(self) -> bool:
        """Whether an event can be added to the stream that this broken response was.

        A probe tells exactly whether the parser stands between two chunks: only there does a last chunk end the body.
        """
        if not self._sse or self._bare or self._until_close:
            return self._sse and self._last_read.endswith(_EVENT_ENDS)
        if not self._last_read.endswith(_CHUNKED_EVENT_ENDS):
            return False
        try:
            self._parser.feed_data(LAST_CHUNK)
        except httptools.HttpParserError:
            return False
        return self._complete


class _WithBody:
    """Parser callbacks that collect the body, for the one kind of client that needs it apart from its framing."""

    def __init__(self, connection: UpstreamConnection, parts: list[bytes]) -> None:
        self.on_body = parts.append
        self.on_message_begin = connection.on_message_begin
        self.on_header = connection.on_header
        self.on_headers_complete = connection.on_headers_complete
        self.on_message_complete = connection.on_message_complete


_PLAIN_OPTIONS = frozenset((b"close", b"keep-alive", b""))
_HANDLED = HOP_BY_HOP | {b"content-length", b"content-type"}
_DROPPED = HOP_BY_HOP
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_CHUNKED_EVENT_ENDS = tuple(end + b"\r\n" for end in _EVENT_ENDS)
