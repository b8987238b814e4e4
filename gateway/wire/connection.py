"""One connection to an upstream: writes requests and reads responses, for one exchange at a time.

A response is passed on as the bytes it came in: its head is rewritten, its body and framing are written to the client
in the loop turn in which they were read. Its chunks are only followed, to know where the response ends (chunkwalk.py,
and chunked.py where they are unusual). Only a client of HTTP/1.0 gets another body than the upstream
sent (no chunks).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.wire.chunked import ChunkedBody, ChunkError
from gateway.wire.chunkwalk import BROKEN, COMPLETE, unusual, walk
from gateway.wire.failure import Failure, FailureKind
from gateway.wire.message import HEAD_END, LAST_CHUNK, LastHead, chunk, status_line
from gateway.wire.responsehead import BadResponseError, ResponseHead
from gateway.wire.tcpstate import was_taken

if TYPE_CHECKING:
    from gateway.wire.exchange import Exchange
    from gateway.wire.upstream import Upstream


class _Body:
    """How the end of the response that is being read will be known; `head` while it has not begun.

    Plain numbers, as in exchange.State.
    """

    head: Final = 0
    length: Final = 1
    chunked: Final = 2
    until_close: Final = 3


class UpstreamConnection:
    """One connection to an upstream, serving one exchange at a time.

    An asyncio.Protocol in all but ancestry: a class compiled by mypyc is fast only if its bases are compiled, too.
    """

    __slots__ = (
        "_began_at",
        "_body_remaining",
        "_chunks",
        "_complete",
        "_excess",
        "_exchange",
        "_follower",
        "_head",
        "_held",
        "_held_bytes",
        "_last_head",
        "_reused",
        "_state",
        "_transport",
        "_upstream",
        "_write",
        "last_read",
    )

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport
        self._exchange: Exchange | None = None
        self._reused = False
        self._began_at: float = 0.0
        self._state: int = _Body.head
        self._head: ResponseHead | None = None
        self._last_head = LastHead()
        self._body_remaining = 0
        """Of a body with a length, or of the chunk that has begun."""
        self._follower: ChunkedBody | None = None
        """Follows a chunked body where it is unusual."""
        self._chunks: ChunkedBody | None = None
        """Unpacks a chunked body for a client of HTTP/1.0."""
        self._complete = False
        self._excess = False
        """More has come than the response."""
        self.last_read = b""
        """While the head is incomplete: all of it so far."""
        self._write: Any = None
        self._held: list[bytes] | None = None
        """What has come of a response that is held back."""
        self._held_bytes = 0

    # --- for the exchange and the pool

    def is_closing(self) -> bool:
        """The transport is on its way out."""
        return self._transport.is_closing()

    def begin(self, exchange: Exchange, data: bytes) -> None:
        """Write a request, or as much of it as there is."""
        self._begin(exchange)
        self._transport.write(data)

    def begin_in_parts(self, exchange: Exchange, parts: list[bytes | memoryview]) -> None:
        """Write a request without joining its parts."""
        self._begin(exchange)
        self._transport.writelines(parts)

    def _begin(self, exchange: Exchange) -> None:
        self._exchange = exchange
        client = exchange.client
        self._began_at = client.clock.at
        self._write = client.transport.write
        if client.write_paused:
            self._transport.pause_reading()

    def serve(self, exchange: Exchange) -> None:
        """The request was written for another exchange; its response is for this one, of the same client."""
        self._exchange = exchange

    def write_body(self, data: bytes) -> None:
        """Write a further piece of the request body, framed."""
        self._transport.write(data)

    def pause(self) -> None:
        """The client does not keep up."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """The client takes data again."""
        self._transport.resume_reading()

    def keep(self) -> None:
        """It was opened for whoever comes next: if it is closed by then, that is no fault."""
        self._reused = True

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
        exchange.client.clock.read()
        if self._state == _Body.head:
            self._read_head(exchange, data)
        else:
            self._relay(exchange, data)

    def eof_received(self) -> None:
        """No more will come. Waiting for `connection_lost` would be waiting until all we have written was taken."""
        self._ended(None, in_order=True)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.forget(self)
        self._ended(exc, in_order=False)

    def _ended(self, exc: Exception | None, in_order: bool) -> None:
        """The connection is over. `in_order`: the upstream has said so, by a FIN or, under TLS, by its alert.

        A TLS connection without that may have been cut by anybody (RFC 9112 section 9.8).
        """
        exchange = self._exchange
        if exchange is None:
            return
        if self._state == _Body.until_close and in_order:
            if not exchange.head.http10:
                self._put(exchange, LAST_CHUNK)
            self._end(exchange)
        elif self._state != _Body.head:
            self._fail(FailureKind.died, f"{_words_of(exc)} in mid-response")
        elif self._reused and not self.last_read and self._crossed(exchange, exc):
            self._upstream.went_stale()
            self._fail(FailureKind.stale, "closed a kept-alive connection as it was reused")
        else:
            self._fail(FailureKind.closed_early, f"{_words_of(exc)} without a response")

    def _crossed(self, exchange: Exchange, exc: Exception | None) -> bool:
        """Whether the close was on its way while our request was: the upstream has certainly not worked on it."""
        if exchange.client.clock.read() - self._began_at >= _RACE_S:
            return False
        return exc is not None or self._transport.get_write_buffer_size() > 0 or not was_taken(self._transport)

    def pause_writing(self) -> None:
        if self._exchange is not None and not self._exchange.received:
            self._exchange.client.pause_body()

    def resume_writing(self) -> None:
        if self._exchange is not None and not self._exchange.received:
            self._exchange.client.resume_body()

    # --- the response

    def _read_head(self, exchange: Exchange, data: bytes) -> None:
        """Read heads until a final one; interim ones (1xx) go on to the client at once, but 100 is for us."""
        if self.last_read:
            data = self.last_read + data
        last = self._last_head
        end, length = last.match(data)
        if end > 0:
            self._respond(exchange, last.value, length, data, end)
            return
        while True:
            end = data.find(HEAD_END) + 4
            if end == 3:
                self.last_read = data
                if not (data.startswith(_VERSION) or _VERSION.startswith(data[: len(_VERSION)])):
                    self._fail(FailureKind.bad_response, "sent something that is not HTTP/1.1")
                elif len(data) > _MAX_HEAD_BYTES:
                    self._fail(FailureKind.bad_response, f"sent a header of more than {_MAX_HEAD_BYTES} bytes")
                return
            try:
                head, length = self._upstream.heads.read(data[:end])
            except BadResponseError as error:
                self._fail(FailureKind.bad_response, str(error))
                return
            if head.status >= 200:
                last.keep(data[:end], head)
                break
            self._reused = False  # the request has been read: a close from here on is no stale connection
            if head.status > 100 and not exchange.head.http10:
                exchange.client.transport.write(b"%b%b\r\n" % (status_line(head.status), head.lines))
            data = data[end:]
        self._respond(exchange, head, length, data, end)

    def _respond(self, exchange: Exchange, head: ResponseHead, length: int, data: bytes, end: int) -> None:
        """Write the client's head, and what has come of the body behind ours, which ends at `end`."""
        self._head = head
        http10 = exchange.head.http10
        keep_alive = exchange.keep_alive and exchange.received and not exchange.client.draining
        framing = b""
        if head.status in _BODILESS or exchange.head.method == b"HEAD":
            self._state = _Body.length
            self._body_remaining = 0
            if head.status == 204:
                pass  # has no framing (RFC 9112 section 6)
            elif head.chunked:
                framing = b"" if http10 else b"transfer-encoding: chunked\r\n"
            elif length >= 0:
                framing = b"content-length: %d\r\n" % length
        elif head.chunked:
            self._state = _Body.chunked
            if http10:
                self._chunks = ChunkedBody()
                keep_alive = False
            else:
                self._body_remaining = 0
                framing = b"transfer-encoding: chunked\r\n"
        elif length >= 0:
            self._state = _Body.length
            self._body_remaining = length
            framing = b"content-length: %d\r\n" % length
        else:
            self._state = _Body.until_close
            if http10:
                keep_alive = False
            else:
                framing = b"transfer-encoding: chunked\r\n"
        rest = data[end:]
        body = self._framed(exchange, rest)
        if body is None:
            return
        if not keep_alive:
            exchange.keep_alive = False
            framing += b"connection: close\r\n"
        elif http10:
            framing += b"connection: keep-alive\r\n"
        if head.status >= 400 and exchange.buffered and exchange.client.handler.holds(exchange, head.status):
            self._held = []
            self._held_bytes = 0
        else:
            exchange.begin_response(head.status)
        self.last_read = rest or _NO_EVENT_YET
        self._write_on(
            exchange,
            b"%b%b%b%b\r\n%b" % (status_line(head.status), head.lines, framing, exchange.response_lines, body),
        )

    def _relay(self, exchange: Exchange, data: bytes) -> None:
        """Write on one read. Hot: once per read of every stream."""
        out = self._framed(exchange, data)
        if out is not None:
            self.last_read = data if len(data) >= _LONGEST_END else (self.last_read + data)[-_LONGEST_END:]
            self._write_on(exchange, out)

    def _framed(self, exchange: Exchange, data: bytes) -> bytes | None:
        """What the client gets for `data` of the body; notes when it is complete. None: it was broken, and failed."""
        state = self._state
        if state == _Body.length:
            self._body_remaining = remaining = self._body_remaining - len(data)
            self._complete = remaining <= 0
            return data if remaining >= 0 else data[:remaining]  # what follows a whole response is not for the client
        if state == _Body.until_close:
            return data if exchange.head.http10 or not data else chunk(data)
        try:
            if self._chunks is not None:
                piece, rest = self._chunks.feed(data)
                self._complete = self._chunks.complete
                self._excess = bool(rest)
                return piece
            follower = self._follower
            if follower is None:
                left = walk(data, self._body_remaining)
                if left >= 0:
                    self._body_remaining = left
                    return data
                self._body_remaining = 0
                if left == COMPLETE:
                    self._complete = True
                    return data
                if left == BROKEN:
                    raise ChunkError("a chunk does not end where its size says")
                follower = self._follower = ChunkedBody()
                rest = follower.feed(data[unusual(left) :])[1]
            else:
                rest = follower.feed(data)[1]
        except ChunkError as error:
            self._fail(FailureKind.bad_response, f"sent an invalid chunk ({error})")
            return None
        if follower.complete:
            self._complete = True
            self._excess = len(rest) > 0
            return data[: len(data) - len(rest)]  # what follows a whole response is not for the client
        left = follower.left
        if left >= 0:
            self._body_remaining = left
            self._follower = None
        return data

    def _write_on(self, exchange: Exchange, data: bytes) -> None:
        if data:
            self._put(exchange, data)
        client = exchange.client
        now = client.clock.at
        self._upstream.last_read_at = now
        if exchange.on_read is not None:
            exchange.on_read(now)
        if self._complete:
            self._end(exchange)
        elif exchange.ending is None:
            client.deadline = now + client.timeouts.stream_idle_s
        elif not self.is_within_event():
            exchange.end(exchange.ending)

    def _put(self, exchange: Exchange, data: bytes) -> None:
        """Write to the client, or hold back."""
        held = self._held
        if held is None:
            self._write(data)
            exchange.bytes_out += len(data)
            return
        held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _MAX_HELD_BYTES:  # no error message is as long
            self._held = None
            assert self._head is not None
            exchange.begin_response(self._head.status)
            self._put(exchange, b"".join(held))

    def _end(self, exchange: Exchange) -> None:
        """The response is complete."""
        self._exchange = None
        held, self._held = self._held, None
        head = self._head
        assert head is not None
        exchange.last_read = self.last_read
        reusable = (
            head.keep_alive
            and exchange.received
            and self._complete
            and not self._excess
            and self._body_remaining >= 0
            and not self._transport.get_write_buffer_size()
            and not self._transport.is_closing()
        )
        if reusable:
            if exchange.client.write_paused:
                self._transport.resume_reading()
            self._reused = True
            self._write = None
            self._state = _Body.head
            self._complete = False
            self._follower = self._chunks = None
            self.last_read = b""
            self._upstream.release(self, exchange.client.clock.at)
        else:
            self._transport.abort()
        if held is None:
            exchange.complete()
        else:
            exchange.held(head.status, b"".join(held))

    def _fail(self, kind: FailureKind, detail: str) -> None:
        exchange, self._exchange = self._exchange, None
        self._transport.abort()
        if exchange is not None:
            exchange.upstream_failed(self, Failure(kind, f"{self._upstream.name} {detail}"))

    def is_within_event(self) -> bool:
        """Whether the event that came last is not complete yet; only `at_event_boundary` is sure of the opposite."""
        if self._head is None or not self._head.event_stream or self._state == _Body.length:
            return False
        ends = _EVENT_ENDS if self._state == _Body.until_close else _CHUNKED_EVENT_ENDS
        return not self.last_read.endswith(ends)

    def at_event_boundary(self) -> bool:
        """Whether an event can be added to the stream that this broken response was."""
        if self._head is None or not self._head.event_stream or self._state == _Body.length:
            return False
        if self._state == _Body.until_close:
            return self.last_read.endswith(_EVENT_ENDS)
        if not self.last_read.endswith(_CHUNKED_EVENT_ENDS):
            return False
        # Only between two chunks does a last one end the body; one that gets no chunks is always there.
        return self._follower is None and self._body_remaining == 0


def _words_of(exc: Exception | None) -> str:
    """How a connection was lost, in words that follow the upstream's name."""
    return "acknowledged nothing any more" if isinstance(exc, TimeoutError) else "closed the connection"


_RACE_S: Final = 1.0
"""A close that crossed our request on its way is here so soon; one that comes later may be the answer to it."""
_MAX_HEAD_BYTES: Final = 256 * 1024
_MAX_HELD_BYTES: Final = 64 * 1024
_VERSION = b"HTTP/1."
_BODILESS = frozenset((204, 304))
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_NO_EVENT_YET = b"\r\n\r\n\r\n"
_LONGEST_END = 6
_CHUNKED_EVENT_ENDS = tuple(end + b"\r\n" for end in _EVENT_ENDS)
