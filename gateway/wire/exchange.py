"""One request and its response: an exchange between a client connection and at most one upstream at a time.

The life of an exchange: the client connection parses a head and makes an `Exchange`; its `Handler` is asked once where
it goes and calls `forward` or `reply`, at once or later; a failed attempt comes back to the handler as long as no
response byte has gone out; `Handler.finished` is called exactly once, whatever happened.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import LAST_CHUNK, Headers, Reply, chunk

if TYPE_CHECKING:
    from gateway.wire.client import ClientConnection
    from gateway.wire.upstream import Upstream, UpstreamConnection


class State(IntEnum):
    """Where an exchange stands; it only ever moves down this list, except from `upstream` back to `deciding`."""

    receiving = 0
    deciding = 1
    """The handler has it, or will have it when the exchanges before it on the connection are done."""
    connecting = 2
    upstream = 3
    """Written to an upstream, no byte of its response has gone out."""
    responding = 4
    done = 5


class Handler(Protocol):
    """What the wire asks of its owner. Called on the event loop; must not block."""

    def buffers(self, exchange: Exchange) -> bool:
        """Whether the whole body is wanted before `handle`; asked when the head is complete."""

    def handle(self, exchange: Exchange) -> None:
        """Call `exchange.forward` or `exchange.reply`, now or later."""

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """An attempt failed and no response byte has gone out: `forward` again or `reply`."""

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        """Server-sent events that end a broken stream, complete with their blank line."""

    def finished(self, exchange: Exchange) -> None:
        """An exchange that `handle` was given is over: answered, failed, or left by its client."""


class Exchange:
    """A request as it came in, and how far its answer has got. Attributes without underscore are the handler's to read.

    body:        the whole body once `handle` is called, if the handler buffers it; else empty.
    status:      status sent to the client, 0 before.
    failure:     what broke the exchange after its response had begun, else None.
    client_left: the client was gone before the response was complete.
    context:     the handler's own.
    Times are seconds of the loop's clock, 0.0 before they happen.
    """

    __slots__ = (
        "_attempt_headers",
        "_body_ended",
        "_body_given",
        "_connect_task",
        "_parts",
        "body",
        "body_size",
        "buffered",
        "bytes_out",
        "chunked",
        "client",
        "client_left",
        "connection",
        "content_length",
        "context",
        "failure",
        "first_byte_at",
        "forward_lines",
        "headers",
        "http10",
        "keep_alive",
        "method",
        "received",
        "request_id",
        "response_lines",
        "started_at",
        "state",
        "status",
        "target",
    )

    def __init__(
        self, client: ClientConnection, method: bytes, target: bytes, headers: Headers, started_at: float
    ) -> None:
        self.client = client
        self.method = method
        self.target = target
        self.headers = headers
        self.started_at = started_at
        self.first_byte_at = 0.0
        self.forward_lines: list[bytes] = []
        self.request_id = b""
        self.http10 = False
        self.keep_alive = True
        self.content_length = -1
        self.chunked = False
        self.buffered = True
        self.received = False
        self.body = b""
        self.body_size = 0
        self.status = 0
        self.bytes_out = 0
        self.failure: Failure | None = None
        self.client_left = False
        self.context: Any = None
        self.response_lines = b""
        self.state = State.receiving
        self.connection: UpstreamConnection | None = None
        self._parts: list[bytes] = []
        self._attempt_headers = b""
        self._body_given = False
        self._body_ended = False
        self._connect_task: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        """The path as the upstream will understand it: percent-decoded, without the query."""
        path = self.target.partition(b"?")[0]
        if b"%" in path:
            path = unquote_to_bytes(path)
        return path.decode("utf-8", "replace")

    @property
    def replayable(self) -> bool:
        """Whether another attempt would send the same bytes: no part of a streamed body has been given away."""
        return self.buffered or not self._body_given

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its lower-case name."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return None

    # --- what the handler may do

    def forward(
        self, upstream: Upstream, *, headers: bytes = b"", body: bytes | None = None, response_lines: bytes = b""
    ) -> None:
        """Send the request to `upstream`.

        headers:        extra request header lines, each ended by CRLF.
        body:           sent instead of the buffered body; ignored for a body that is streamed through.
        response_lines: extra response header lines for the client, each ended by CRLF.
        """
        if self.state == State.done:
            return
        self.response_lines = response_lines
        self._attempt_headers = headers
        if body is not None:
            self.body = body
        connection = upstream.take()
        if connection is not None:
            self.attach(connection)
            return
        self.state = State.connecting
        self.client.deadline = float("inf")  # the pool bounds the time to connect
        self._connect_task = upstream.connect(self)

    def reply(self, reply: Reply) -> None:
        """Answer the client ourselves."""
        if self.state == State.done:
            return
        self._drop_connection()
        self.client.send_reply(self, reply)
        self.finish()

    # --- what the upstream side calls

    def attach(self, connection: UpstreamConnection) -> None:
        """An upstream connection is ours: write the request."""
        self._connect_task = None
        self.connection = connection
        self.state = State.upstream
        client = self.client
        client.deadline = client.now() + client.timeouts.first_byte_s
        lines = self.forward_lines
        if self.buffered:
            size = len(self.body)
            length = b"content-length: %d\r\n" % size if size or self.content_length >= 0 or self.chunked else b""
        elif self.chunked:
            size = 0
            length = b"transfer-encoding: chunked\r\n"
        else:
            size = 0
            length = b"content-length: %d\r\n" % self.content_length if self.content_length >= 0 else b""
        head = b"%b %b HTTP/1.1\r\n%b\r\n%b%b\r\n" % (
            self.method,
            self.target,
            b"\r\n".join(lines),
            self._attempt_headers,
            length,
        )
        if not size:
            connection.begin(self, (head,))
        elif size < _COPY_BELOW:
            connection.begin(self, (head + self.body,))
        else:
            connection.begin(self, (head, self.body))
        if not self.buffered:
            self._body_ended = False
            self.flush_body()

    def connect_failed(self, failure: Failure) -> None:
        """No connection could be made for this exchange."""
        self._connect_task = None
        self._failed(failure)

    def begin_response(self, status: int) -> None:
        """The response head is about to be written: from here on there is no other attempt."""
        self.status = status
        self.state = State.responding
        self.first_byte_at = self.client.now()
        self.body = b""

    def upstream_failed(self, connection: UpstreamConnection, failure: Failure) -> None:
        """The upstream broke off. `connection` has closed itself and forgotten us."""
        self.connection = None
        if self.state == State.responding:
            self._broken(connection, failure)
        else:
            self._failed(failure)

    def complete(self) -> None:
        """The whole response has been written to the client."""
        self.connection = None
        self.finish()

    # --- what the client side calls

    def add_body(self, data: bytes) -> None:
        """A piece of the request body has arrived."""
        self._parts.append(data)

    def body_received(self) -> None:
        """The request is complete."""
        self.received = True
        if self.buffered:
            parts = self._parts
            self.body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._parts = []

    def flush_body(self) -> None:
        """Write on what has arrived of a body that is streamed through."""
        connection = self.connection
        if connection is None or self.state == State.done:
            return
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._body_given = True
            connection.write_body(chunk(data) if self.chunked else data)
        if not self.received:
            self.client.deadline = self.client.now() + self.client.timeouts.body_s
        elif not self._body_ended:
            self._body_ended = True
            self.client.deadline = self.client.now() + self.client.timeouts.first_byte_s
            if self.chunked:
                connection.write_body(LAST_CHUNK)

    def leave(self) -> None:
        """The client is gone: close the upstream exchange at once."""
        if self.state == State.receiving:
            self.state = State.done  # the handler never saw it
        if self.state == State.done:
            return
        self.client_left = True
        self._drop_connection()
        self.finish()

    def expire(self) -> None:
        """The deadline of the running exchange has passed."""
        client = self.client
        if self.state == State.responding:
            if client.write_paused:
                client.abort()  # the client takes nothing: nobody else is to blame
                return
            connection = self.connection
            self._drop_connection()
            assert connection is not None
            detail = f"the upstream sent nothing for {client.timeouts.stream_idle_s:g} s"
            self._broken(connection, Failure(FailureKind.idle_timeout, detail))
        elif self.state == State.upstream:
            self._drop_connection()
            self._failed(
                Failure(FailureKind.first_byte_timeout, f"no response within {client.timeouts.first_byte_s:g} s")
            )

    # --- ends

    def finish(self) -> None:
        """The one way out. Tells the handler, then the client connection, which may start its next exchange."""
        self.state = State.done
        client = self.client
        client.finished(self)

    def _failed(self, failure: Failure) -> None:
        if self.state == State.done:
            return
        self.state = State.deciding
        self.client.deadline = float("inf")
        self.client.failed(self, failure)

    def _broken(self, connection: UpstreamConnection, failure: Failure) -> None:
        """The response has begun and will not be completed by the upstream: end it so that the client knows."""
        self.failure = failure
        event = self.client.handler.stream_error(self, failure) if connection.at_event_boundary() else b""
        self.client.end_broken(self, event)
        self.finish()

    def _drop_connection(self) -> None:
        if self._connect_task is not None:
            self._connect_task.cancel()
            self._connect_task = None
        if self.connection is not None:
            self.connection.drop()
            self.connection = None


_COPY_BELOW = 64 * 1024
"""Bodies up to this size are joined to the head: one copy costs less than a second write."""
