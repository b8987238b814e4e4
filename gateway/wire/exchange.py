"""One request and its response: an exchange between a client connection and at most one upstream at a time.

The life of an exchange: the client connection reads a head and makes an `Exchange`; its `Handler` is asked once where
it goes and calls `forward` or `reply`, at once or later; a failed attempt comes back to the handler as long as no
response byte has gone out; `Handler.finished` is called exactly once, whatever happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import LAST_CHUNK, Reply, chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.wire.client import ClientConnection
    from gateway.wire.connection import UpstreamConnection
    from gateway.wire.pending import Pending
    from gateway.wire.requesthead import RequestHead
    from gateway.wire.upstream import Upstream


class State:
    """Where an exchange stands; it only ever moves down this list, except from `upstream` back to `deciding`.

    Plain numbers: looking up an enum's member takes longer than the comparison that it is for, and this is compared a
    dozen times for each request.
    """

    receiving: Final = 0
    deciding: Final = 1
    """The handler has it."""
    connecting: Final = 2
    upstream: Final = 3
    """Written to an upstream, no byte of its response has gone out."""
    responding: Final = 4
    done: Final = 5


class Handler(Protocol):
    """What the wire asks of its owner. Called on the event loop; must not block."""

    def buffers(self, exchange: Exchange) -> bool:
        """Whether the whole body is wanted before `handle`; asked when the head is complete."""

    def handle(self, exchange: Exchange) -> None:
        """Call `exchange.forward` or `exchange.reply`, now or later."""

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """An attempt failed and no response byte has gone out: `forward` again or `reply`."""

    def holds(self, exchange: Exchange, status: int) -> bool:
        """Whether an error response (4xx, 5xx) to a buffered request is to be held back for `refused`."""

    def refused(self, exchange: Exchange, status: int, message: bytes) -> None:
        """A response that was held back is complete: `forward` again, `reply`, or `pass_on`. `message`: all of it."""

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        """Server-sent events that end a broken stream, complete with their blank line."""

    def cut(self, exchange: Exchange, failure: Failure) -> None:
        """There is no more time for it, since we are going away: `reply`, or `end` the response that has begun."""

    def finished(self, exchange: Exchange) -> None:
        """An exchange that `handle` was given is over: answered, failed, or left by its client."""


class Exchange:
    """A request as it came in, and how far its answer has got. Attributes without underscore are the handler's to read.

    head:        the request's head, shared with other requests that spell it alike.
    length:      `content-length` of the request, -1 without one.
    request_id:  from `x-request-id`; the handler may set it.
    body:        the whole body once `handle` is called, if the handler buffers it; else empty.
    received:    the request is complete.
    status:      status sent to the client, 0 before.
    failure:     what broke the exchange after its response had begun, else None.
    client_left: the client was gone before the response was complete.
    last_read:   what came last of the response when it ended or the client left, enough to see whether that was its
                 end.
    on_read:     the handler's, told the loop's time at each read of the response; None for most.
    ending:      why the handler wants the response to end at the next boundary between events, else None.
    context:     the handler's own.
    Times are seconds of the loop's clock, 0.0 before they happen. Values that most exchanges never change are class
    attributes: setting thirty of them for each request would cost a microsecond.
    """

    request_id = b""
    buffered = True
    received = False
    body = b""
    body_size = 0
    status = 0
    bytes_out = 0
    first_byte_at = 0.0
    failure: Failure | None = None
    client_left = False
    last_read = b""
    on_read: Callable[[float], None] | None = None
    ending: Failure | None = None
    context: Any = None
    response_lines = b""
    state: int = 0  # State.receiving
    connection: UpstreamConnection | None = None
    _parts: list[bytes] | None = None
    _attempt_lines = b""
    _attempt_body = b""
    _attempt_cut = 0
    _attempt_tail = b""
    _head_lines: bytes | None = None
    _body_given = False
    _body_ended = False
    _pending: Pending | None = None
    _held = b""
    _held_status = 0

    def __init__(self, client: ClientConnection, head: RequestHead, length: int, started_at: float) -> None:
        self.client = client
        self.head = head
        self.length = length
        self.started_at = started_at
        self.keep_alive = head.keep_alive

    @property
    def method(self) -> bytes:
        """The request's method, in capitals."""
        return self.head.method

    @property
    def path(self) -> str:
        """The path as the upstream will understand it: percent-decoded, without the query."""
        return self.head.path

    @property
    def replayable(self) -> bool:
        """Whether another attempt would send the same bytes: no part of a streamed body has been given away."""
        return self.buffered or not self._body_given

    # --- what the handler may do

    def forward(
        self,
        upstream: Upstream,
        *,
        headers: bytes = b"",
        body: bytes | None = None,
        cut: int = -1,
        tail: bytes = b"",
        response_lines: bytes = b"",
        head_lines: bytes | None = None,
    ) -> None:
        """Send the request to `upstream`.

        headers:        extra request header lines, each ended by CRLF.
        head_lines:     sent instead of the head's own lines.
        body:           sent instead of the buffered body; ignored for a body that is streamed through.
        cut, tail:      so many bytes of the body are sent, and behind them this; all of it if negative.
        response_lines: extra response header lines for the client, each ended by CRLF.
        """
        if self.state == State.done:
            return
        self.response_lines = response_lines
        self._attempt_lines = headers
        self._attempt_body = body = self.body if body is None else body
        self._attempt_cut = len(body) if cut < 0 else cut
        self._attempt_tail = tail
        self._head_lines = head_lines
        connection = upstream.take(self.client.clock.at)
        if connection is not None:
            self.attach(connection)
            return
        self.state = State.connecting
        if self.received:
            self.client.deadline = _NEVER  # the pool bounds the time to connect
        self._pending = upstream.connect(self)

    def reply(self, reply: Reply) -> None:
        """Answer the client ourselves, unless an answer has begun."""
        if self.state >= State.responding:
            return
        self._drop_connection()
        self.client.send_reply(self, reply)
        self.finish()

    def withdraw(self) -> bool:
        """Take the request back from where it was sent, whose connection is closed; then `forward` it again or `reply`.

        False: an answer has begun, or the exchange is over.
        """
        if self.state >= State.responding:
            return False
        self._drop_connection()
        self.state = State.deciding
        self.client.deadline = _NEVER
        return True

    def end(self, failure: Failure) -> None:
        """End a response that has begun: a stream of events with `Handler.stream_error`, where an event may stand.

        That is now, or as soon as the event that is being sent is complete.
        """
        connection = self.connection
        if self.state != State.responding or connection is None:
            return
        if connection.is_within_event():
            self.ending = failure
            self.client.deadline = self.client.clock.read() + _END_WITHIN_S
        else:
            self._drop_connection()
            self._broken(connection, failure)

    def pass_on(self) -> None:
        """Give the client the response that was held back."""
        if self.state != State.deciding:
            return
        self.begin_response(self._held_status)
        self.bytes_out += len(self._held)
        self.client.transport.write(self._held)
        self.finish()

    def adopt(self, connection: UpstreamConnection, response_lines: bytes) -> None:
        """Go on with another connection than ours, which is closed: on that one the request was written, too."""
        self._drop_connection()
        self.connection = connection
        self.state = State.upstream
        self.response_lines = response_lines
        connection.serve(self)

    def take_pending(self, other: Exchange) -> None:
        """Wait for the connection that another exchange of our client waits for, and tells us of; send what that would.

        Ours is closed.
        """
        self._drop_connection()
        self._pending = other._pending
        self._attempt_lines, self._attempt_body = other._attempt_lines, other._attempt_body
        self._attempt_cut, self._attempt_tail = other._attempt_cut, other._attempt_tail
        self._head_lines = other._head_lines
        self.response_lines = other.response_lines
        self.state = State.connecting
        self.client.deadline = _NEVER

    # --- what the upstream side calls

    def attach(self, connection: UpstreamConnection) -> None:
        """An upstream connection is ours: write the request."""
        self._pending = None
        self.connection = connection
        self.state = State.upstream
        head, client = self.head, self.client
        if not self.buffered:
            framing = b"transfer-encoding: chunked\r\n" if head.chunked else self._length_line(self.length)
            connection.begin(self, self._spelled(framing))
            self._body_ended = False
            client.resume_body()
            self.flush_body()
            return
        client.deadline = client.clock.at + client.timeouts.first_byte_s
        body, tail = self._attempt_body, self._attempt_tail
        cut = self._attempt_cut
        size = cut + len(tail)
        if not size:
            connection.begin(self, self._spelled(self._length_line(0 if head.has_length or head.chunked else -1)))
        elif size < _COPY_BELOW:
            connection.begin(self, self._spelled(b"content-length: %d\r\n" % size, body[:cut], tail))
        else:
            spelled = self._spelled(b"content-length: %d\r\n" % size)
            connection.begin_in_parts(self, [spelled, memoryview(body)[:cut], tail])

    def begin_response(self, status: int) -> None:
        """The response head is about to be written: from here on there is no other attempt."""
        self.status = status
        self.state = State.responding
        self.first_byte_at = self.client.clock.at
        self.body = self._attempt_body = b""

    def connect_failed(self, failure: Failure) -> None:
        """No connection could be made for this exchange."""
        self._pending = None
        self._failed(failure)

    def upstream_failed(self, connection: UpstreamConnection, failure: Failure) -> None:
        """The upstream broke off. `connection` has closed itself and forgotten us."""
        self.connection = None
        if self.state == State.responding:
            self._broken(connection, failure)
        else:
            self._failed(failure)

    def held(self, status: int, message: bytes) -> None:
        """A whole response has come that the handler wants to see before the client does."""
        self.connection = None
        self.state = State.deciding
        self._held_status, self._held = status, message
        self.client.deadline = _NEVER
        self.client.refused(self, status, message)

    def complete(self) -> None:
        """The whole response has been written to the client."""
        self.connection = None
        self.finish()

    # --- what the client side calls

    def add_body(self, data: bytes) -> None:
        """A piece of the request body has arrived."""
        self.body_size += len(data)
        if self._parts is None:
            self._parts = [data]
        else:
            self._parts.append(data)

    def body_received(self) -> None:
        """The request is complete."""
        self.received = True
        if self.buffered and self._parts is not None:
            self.body = b"".join(self._parts)
            self._parts = None

    def flush_body(self) -> None:
        """Write on what has arrived of a body that is streamed through."""
        connection, client = self.connection, self.client
        if connection is None:
            if self.body_size > client.limits.write_high_water_bytes and not self.received:
                client.pause_body()
            return
        if self._body_ended:
            return
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._body_given = True
            connection.write_body(chunk(data) if self.head.chunked else data)
        if not self.received:
            client.deadline = client.clock.at + client.timeouts.body_s
            return
        self._body_ended = True
        client.deadline = client.clock.at + client.timeouts.first_byte_s
        if self.head.chunked:
            connection.write_body(LAST_CHUNK)

    def leave(self) -> None:
        """The client is gone: close the upstream exchange at once."""
        if self.state == State.receiving:
            self.state = State.done  # the handler never saw it
        if self.state == State.done:
            return
        self.client_left = True
        if self.state == State.responding and self.connection is not None:
            self.last_read = self.connection.last_read
        self._drop_connection()
        self.finish()

    def expire(self) -> None:
        """The deadline of the running exchange has passed."""
        client = self.client
        if self.state == State.responding:
            if self.ending is not None:
                connection = self.connection
                self._drop_connection()
                assert connection is not None
                self._broken(connection, self.ending)
                return
            if client.write_paused:
                client.abort()  # the client takes nothing: nobody else is to blame
                return
            silent = self.connection
            self._drop_connection()
            assert silent is not None
            detail = f"the upstream sent nothing for {client.timeouts.stream_idle_s:g} s"
            self._broken(silent, Failure(FailureKind.idle_timeout, detail))
        elif self.state == State.upstream:
            self._drop_connection()
            if self.received:
                detail = f"the upstream did not answer within {client.timeouts.first_byte_s:g} s"
            else:
                detail = f"the upstream took nothing of the request body for {client.timeouts.body_s:g} s"
            self._failed(Failure(FailureKind.first_byte_timeout, detail))

    # --- ends

    def finish(self) -> None:
        """The one way out. Tells the handler, then the client connection, which may start its next exchange."""
        self.state = State.done
        self.client.finished(self)

    def _failed(self, failure: Failure) -> None:
        if self.state == State.done:
            return
        self.state = State.deciding
        self.client.deadline = _NEVER
        self.client.failed(self, failure)

    def _broken(self, connection: UpstreamConnection, failure: Failure) -> None:
        """The response has begun and will not be completed by the upstream: end it so that the client knows."""
        self.failure = failure
        event = self.client.stream_error(self, failure) if connection.at_event_boundary() else b""
        self.client.end_broken(self, event)
        self.finish()

    def _drop_connection(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    def _spelled(self, framing: bytes, body: bytes = b"", tail: bytes = b"") -> bytes:
        head, client = self.head, self.client
        if head.trail is not client.trail:
            client.follow(head.trail)
        return b"%b %b HTTP/1.1\r\n%b%b%b%b\r\n%b%b" % (
            head.method,
            head.target,
            head.lines if self._head_lines is None else self._head_lines,
            client.trail_lines,
            self._attempt_lines,
            framing,
            body,
            tail,
        )

    @staticmethod
    def _length_line(length: int) -> bytes:
        return b"content-length: %d\r\n" % length if length >= 0 else b""


_NEVER: Final = float("inf")
_END_WITHIN_S: Final = 1.0
"""How long we wait for the rest of an event before we end a stream without it."""
_COPY_BELOW: Final = 16 * 1024
"""Bodies up to this size are joined to the head: one copy costs less than a write of several pieces."""
