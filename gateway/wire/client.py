"""The client side: reads requests from one connection, one exchange at a time, and writes our own answers.

A request is read only when the one before it has been answered, so answers keep their order by themselves. One
deadline per connection, moved as its state changes and checked by the server's sweep, stands for every timeout: idle,
header, body, and those of the running exchange.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
import structlog

from gateway.wire.chunked import ChunkedBody, ChunkError
from gateway.wire.exchange import Exchange, Handler, State
from gateway.wire.failure import Failure
from gateway.wire.forwarding import Peer, Trail
from gateway.wire.message import (
    CONTINUE,
    HANDLER_FAILED,
    HEAD_END,
    LAST_CHUNK,
    LastHead,
    Reply,
    chunk,
    error_reply,
    status_line,
)
from gateway.wire.requesthead import HeadProbe, RefusedError, RequestHead
from gateway.wire.tcpstate import bytes_acked, reset_at_close
from gateway.wire.variedhead import VariedHead

if TYPE_CHECKING:
    from gateway.wire.server import Server

log = structlog.get_logger("steplane.wire")


class ClientConnection:
    """One client connection.

    An asyncio.Protocol in all but ancestry: a class compiled by mypyc is fast only if its bases are compiled, too.
    """

    __slots__ = (
        "_announced",
        "_body_remaining",
        "_chunks",
        "_closing",
        "_counts",
        "_deaf",
        "_forwarding",
        "_heads",
        "_incoming",
        "_last_head",
        "_partial",
        "_peer",
        "_probe",
        "_server",
        "_unread",
        "_varied_head",
        "clock",
        "current",
        "deadline",
        "handler",
        "limits",
        "reading_paused",
        "timeouts",
        "trail",
        "trail_lines",
        "transport",
        "write_paused",
    )

    def __init__(self, server: Server, announced: str | None = None) -> None:
        """announced: the client's address, where a proxy that speaks for it has told it."""
        self._server = server
        self._announced = announced
        self._heads = server.heads
        self._counts = server.counts
        self._forwarding = server.forwarding
        self.handler: Handler = server.handler
        self.limits = server.limits
        self.timeouts = server.timeouts
        self.clock = server.clock
        self.transport: asyncio.Transport
        self.current: Exchange | None = None
        """The exchange that the handler has."""
        self.deadline = 0.0
        self.write_paused = False
        self._incoming: Exchange | None = None
        """The exchange whose body is being read; also `current` if its body is streamed through."""
        self._body_remaining = 0
        self._chunks: ChunkedBody | None = None
        self._last_head = LastHead()
        self._varied_head = VariedHead(server.forwarding)
        self._peer: Peer | None = None
        self.trail: Trail | None = None
        """Of the last request that went out."""
        self.trail_lines = b""
        """What its replica is told of the way that it came."""
        self._partial = bytearray()
        self._probe: HeadProbe | None = None
        self._unread = b""
        """What came while an exchange was running."""
        self.reading_paused = False
        """We take nothing more for now, and so would not hear of the client's leaving: see `has_left`."""
        self._closing = False
        self._deaf = False
        """Whatever still comes is dropped."""

    @property
    def draining(self) -> bool:
        """The server is going away: no further request on this connection."""
        return self._server.draining

    @property
    def address(self) -> str:
        """Where the client is, as text; empty where a Unix socket hides it."""
        if self._announced is not None:
            return self._announced
        place: Any = self.transport.get_extra_info("peername")
        return place[0] if isinstance(place, tuple) else ""

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.limits.write_high_water_bytes)
        self.deadline = self.clock.read() + self.timeouts.header_s
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self.clock.read()
        if self._unread or (self.current is not None and self._incoming is None):
            self._put_off(self._unread + data)
            return
        self._read(data)

    def eof_received(self) -> None:
        """A closing client looks the same as one that only stops sending: both are treated as gone.

        What has been written already still goes out.
        """
        self._set_last_deadline()
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._server.closed(self)
        self._leave()

    def _leave(self) -> None:
        self._closing = self._deaf = True
        self._unread = b""
        if self.current is not None:
            self.current.leave()

    def pause_writing(self) -> None:
        self.write_paused = True
        if self.current is not None and self.current.connection is not None:
            self.current.connection.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        current = self.current
        if current is None:
            if self._unread or self.reading_paused:
                self._server.loop.call_soon(self._read_on)
        elif current.connection is not None:
            if current.state == State.responding:
                self.deadline = self.clock.read() + self.timeouts.stream_idle_s
            current.connection.resume()

    # --- what exchanges and upstream connections use

    def follow(self, trail: Trail | None) -> None:
        """Spell `trail_lines` for requests that came by `trail`: the next one most often has the same."""
        forwarding = self._forwarding
        self.trail = trail
        if trail is None or forwarding is None:
            self.trail_lines = b""
            return
        if self._peer is None:
            self._peer = forwarding.peer(self.address, self.transport.get_extra_info("ssl_object") is not None)
        self.trail_lines = forwarding.lines(trail, self._peer)

    def send_reply(self, exchange: Exchange, reply: Reply) -> None:
        """Write a complete response of ours."""
        exchange.status = reply.status
        exchange.keep_alive = keep_alive = exchange.keep_alive and exchange.received and not self.draining
        lines = exchange.response_lines
        if keep_alive and exchange.head.http10:
            lines += b"connection: keep-alive\r\n"
        self._write_reply(reply, lines, close=not keep_alive, head_only=exchange.method == b"HEAD")

    def end_broken(self, exchange: Exchange, event: bytes) -> None:
        """End a response that cannot be completed: with `event` and a correct end, or without one if there is none."""
        if event and not exchange.head.http10:
            self.transport.write(chunk(event) + LAST_CHUNK)
            return
        exchange.keep_alive = False
        if event:
            self.transport.write(event)
        elif exchange.head.http10:
            self.abort()

    def finished(self, exchange: Exchange) -> None:
        """An exchange is over: tell the handler, then turn to the next request, or close."""
        counts = self._counts
        counts.bytes_in += exchange.body_size
        counts.bytes_out += exchange.bytes_out
        try:
            self.handler.finished(exchange)
        except Exception:
            self._log_raised(exchange)
        if exchange is not self.current:
            return
        self.current = None
        if self._closing:
            return
        if not exchange.keep_alive or self._server.draining:
            if exchange.received and not self._unread and not self.reading_paused:
                self._close()
            else:
                self._linger()
            return
        self.deadline = self.clock.at + self.timeouts.keepalive_s
        if self._unread or self.reading_paused:
            self._server.loop.call_soon(self._read_on)

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """Give a failed attempt back to the handler."""
        try:
            self.handler.failed(exchange, failure)
        except Exception:
            self._handler_raised(exchange)

    def refused(self, exchange: Exchange, status: int, message: bytes) -> None:
        """Show the handler a response that was held back."""
        try:
            self.handler.refused(exchange, status, message)
        except Exception:
            self._handler_raised(exchange)

    def stream_error(self, exchange: Exchange, failure: Failure) -> bytes:
        """The handler's last event for a broken stream."""
        try:
            return self.handler.stream_error(exchange, failure)
        except Exception:
            self._log_raised(exchange)
            return b""

    def pause_body(self) -> None:
        """The upstream does not keep up with the request body, or there is none yet."""
        if not self.reading_paused:
            self._pause_reading()

    def resume_body(self) -> None:
        """The upstream takes data again."""
        if self.reading_paused:
            self.deadline = self.clock.read() + self.timeouts.body_s
            self._resume_reading()

    def abort(self) -> None:
        """Close without ceremony. A client of HTTP/1.0, to whom a close is the end of a response, gets a reset."""
        exchange = self.current
        if exchange is not None and exchange.head.http10 and exchange.state == State.responding:
            reset_at_close(self.transport)
        self.transport.abort()

    # --- what the server uses

    def expire(self) -> None:
        """The deadline has passed."""
        if self._closing:
            self.transport.abort()
        elif self._incoming is not None and not self.reading_paused:
            limit = f"nothing came of the request body for {self.timeouts.body_s:g} s"
            self._refuse(error_reply(408, limit, "request_timeout"))
        elif self.current is not None:
            self.current.expire()
        elif self._partial:
            limit = f"the request header was not complete within {self.timeouts.header_s:g} s"
            self._refuse(error_reply(408, limit, "request_timeout"))
        else:
            self._close()

    def has_left(self) -> bool:
        """Whether the client has closed the connection, asked of the kernel: while nothing is read, nobody says so."""
        asked = select.poll()
        asked.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        return len(asked.poll(0)) > 0

    def body_due(self) -> Exchange | None:
        """The exchange whose body the client is to send just now, if there is one."""
        return None if self.reading_paused or self._closing else self._incoming

    def refuse_slow_body(self) -> None:
        """The body comes more slowly than the least rate."""
        limit = f"the request body came at less than {self.limits.body_min_bytes_per_s} bytes per second"
        self._refuse(error_reply(408, limit, "request_timeout"))

    def bytes_taken(self) -> int:
        """How much the client has taken of what we have written since some moment that never changes.

        Asked of the kernel, which may hold megabytes that our own buffer knows nothing of.
        """
        acked = bytes_acked(self.transport)
        if acked is not None:
            return acked
        written = 0 if self.current is None else self.current.bytes_out
        return written - self.transport.get_write_buffer_size()

    def turn_away(self, reply: Reply) -> None:
        """Answer before any request has come, and close."""
        self._write_refusal(reply, b"", head_only=False)
        self._linger()

    def drain(self) -> None:
        """Close if idle; else the request that is running, or coming in, will be the last."""
        if self.current is None and self._incoming is None and not self._partial and not self._unread:
            self._close()

    def cut(self, failure: Failure) -> None:
        """There is no more time for what runs or comes in: say so, and close."""
        if self._closing:
            return
        self.clock.read()
        exchange = self.current
        if exchange is not None:
            try:
                self.handler.cut(exchange, failure)
            except Exception:
                self._handler_raised(exchange)
        elif self._incoming is not None or self._partial:
            self._refuse(error_reply(failure.status, failure.detail, failure.kind.value))
        else:
            self._close()

    # --- reading

    def _read(self, data: bytes) -> None:
        """Read one request from `data`, as much of it as there is; what is behind it has to wait.

        For its answer; or where that is there already, for others to have the loop, and for the client to read it:
        else whoever asks a million times at once for what we answer ourselves would have all of our time and memory.
        """
        begun = False
        try:
            while data and not self._deaf:
                if self._incoming is not None:
                    data = self._read_body(self._incoming, data)
                elif self.current is not None or self.write_paused:
                    self._put_off(data)
                    return
                elif begun:
                    self._put_off(data)
                    self._server.loop.call_soon(self._read_on)
                    return
                else:
                    data = self._read_head(data)
                    begun = True
        except RefusedError as error:
            self._refuse(error.reply, error.request_id, error.head_only)
        except ChunkError as broken:  # a name of its own: to mypyc a variable has one type
            self._refuse(error_reply(400, f"invalid request body: {broken}", "bad_http"))
        except Exception:
            log.exception("request_failed")
            self._refuse(HANDLER_FAILED)

    def _read_on(self) -> None:
        """Turn to what came while the last exchange was running."""
        if self._closing or self.current is not None:
            return
        self.clock.read()
        data, self._unread = self._unread, b""
        self._read(data)
        if len(self._unread) <= _UNREAD_HIGH_WATER and not self._closing:
            self._resume_reading()

    def _put_off(self, data: bytes) -> None:
        """Keep what can't be turned to yet, and take no more if it is much."""
        self._unread = data
        if len(data) > _UNREAD_HIGH_WATER and not self.reading_paused:
            self._pause_reading()

    def _read_head(self, data: bytes) -> bytes:
        """Read one head; returns what follows it, or nothing while it is incomplete."""
        if self._partial:
            data = self._joined(data)
        elif data[0] in b"\r\n":
            return data.lstrip(b"\r\n")  # RFC 9112 section 2.2: empty lines before a request line are ignored
        last = self._last_head
        end, length = last.match(data)
        head: RequestHead
        if end > 0:
            head = last.value
        else:
            varied, end, length = self._varied_head.match(data)
            if varied is None:
                end = data.find(HEAD_END) + 4
            if end == 3:
                self._keep_partial(data)
                return b""
            if end > self.limits.max_header_bytes:
                raise self._header_too_large(data)
            if varied is None:
                head, length = self._learn_head(data if end == len(data) else data[:end])
            else:
                head = varied
        if length > self.limits.max_body_bytes:
            raise RefusedError(self._body_too_large(), head.request_id, head.method == b"HEAD")
        self._partial.clear()
        self._probe = None
        exchange = Exchange(self, head, length, self.clock.at)
        exchange.request_id = head.request_id
        if length > 0 or head.chunked:
            self._incoming = exchange
            self._body_remaining = length
            self._chunks = ChunkedBody() if head.chunked else None
            exchange.buffered = self.handler.buffers(exchange)
            if not exchange.buffered:
                self._start(exchange)
            if end == len(data) and self._incoming is exchange:  # it may have been refused by its head
                self.deadline = self.clock.at + self.timeouts.body_s
                if head.expects_continue:
                    self.transport.write(CONTINUE)
        else:
            exchange.received = True
            self._start(exchange)
        return data[end:]

    def _learn_head(self, spelled: bytes) -> tuple[RequestHead, int]:
        """A head that is not like the last one, and its length; the next one may be like it."""
        try:
            head, length = self._heads.read(spelled)
        except RefusedError as error:
            error.head_only = spelled.startswith(b"HEAD ")
            raise
        if head.base is None:
            self._last_head.keep(spelled, head)
        else:
            self._varied_head.keep(spelled, head)
        return head, length

    def _joined(self, data: bytes) -> bytes:
        """The unfinished head with `data` behind it."""
        assert self._probe is not None
        if HEAD_END not in self._partial[-3:] + data[: self.limits.max_header_bytes]:
            return data
        joined = bytes(self._partial) + data
        self._partial.clear()
        return joined

    def _keep_partial(self, data: bytes) -> None:
        """Keep an unfinished head. What is wrong with it is said at once, not when it ends."""
        if not self._partial:
            self.deadline = self.clock.at + self.timeouts.header_s
        self._partial += data
        if len(self._partial) > self.limits.max_header_bytes:
            raise self._header_too_large(bytes(self._partial))
        if self._probe is None:
            self._probe = HeadProbe()
        self._probe.feed(data)

    def _read_body(self, exchange: Exchange, data: bytes) -> bytes:
        """Read on in a body; returns what follows it."""
        if self._chunks is None:
            remaining = self._body_remaining
            if len(data) <= remaining:  # compiled, a slice of all of it would be a copy
                piece, rest = data, b""
            else:
                piece, rest = data[:remaining], data[remaining:]
            self._body_remaining = remaining = remaining - len(piece)
            exchange.add_body(piece)
            complete = not remaining
        else:
            piece, rest = self._chunks.feed(data)
            if piece:
                exchange.add_body(piece)
            complete = self._chunks.complete
            if exchange.body_size > self.limits.max_body_bytes:
                raise RefusedError(self._body_too_large())
        if complete:
            self._incoming = None
            exchange.body_received()
            if exchange.buffered:
                self._start(exchange)
                return rest
        else:
            self.deadline = self.clock.at + self.timeouts.body_s
        if not exchange.buffered:
            exchange.flush_body()
        return rest

    def _start(self, exchange: Exchange) -> None:
        """Give an exchange to the handler."""
        self.current = exchange
        exchange.state = State.deciding
        if exchange.received:
            self.deadline = _NEVER  # until it is forwarded, the handler keeps its time
        try:
            self.handler.handle(exchange)
        except Exception:
            self._handler_raised(exchange)

    def _refuse(self, reply: Reply, request_id: bytes = b"", head_only: bool = False) -> None:
        """Answer a request that cannot be read, and close. `head_only`: without the body, which HEAD must not get."""
        self._deaf = True
        incoming, self._incoming = self._incoming, None
        if incoming is None:
            self._write_refusal(reply, request_id, head_only)
            self._linger()
        elif incoming is not self.current:
            self._write_refusal(reply, incoming.request_id, incoming.method == b"HEAD")
            self._linger()
        elif incoming.state == State.responding:
            self.abort()  # the upstream answers already, and its answer cannot be completed
        else:
            self._counts.refuse(reply.status)
            incoming.keep_alive = False
            incoming.reply(reply)

    # --- inside

    def _handler_raised(self, exchange: Exchange) -> None:
        self._log_raised(exchange)
        if exchange.state == State.responding:
            self.abort()
        else:
            exchange.reply(HANDLER_FAILED)

    def _log_raised(self, exchange: Exchange) -> None:
        log.exception("handler_failed", method=exchange.method.decode("latin-1"), path=exchange.path)

    def _pause_reading(self) -> None:
        self.reading_paused = True
        self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.reading_paused:
            self.reading_paused = False
            self.transport.resume_reading()

    def _header_too_large(self, data: bytes) -> RefusedError:
        limit = self.limits.max_header_bytes
        if data.find(b"\r\n", 0, limit) < 0:
            reply = error_reply(414, f"the request line exceeds {limit} bytes", "uri_too_long")
        else:
            reply = error_reply(431, f"the request header exceeds {limit} bytes", "header_too_large")
        return RefusedError(reply, head_only=data.startswith(b"HEAD "))

    def _body_too_large(self) -> Reply:
        return error_reply(413, f"the request body exceeds {self.limits.max_body_bytes} bytes", "body_too_large")

    def _write_refusal(self, reply: Reply, request_id: bytes, head_only: bool) -> None:
        """Write an error of the wire's own under an id that the log has, too: the client's, if it has a usable one."""
        self._counts.refuse(reply.status)
        if not _REQUEST_ID(request_id):
            request_id = os.urandom(12).hex().encode()
        error = orjson.loads(reply.body)["error"]
        log.info(
            "request_refused",
            status=reply.status,
            code=error["code"],
            reason=error["message"],
            request_id=request_id.decode("ascii"),
            client=self.address,
        )
        self._write_reply(reply, b"x-request-id: %b\r\n" % request_id, close=True, head_only=head_only)

    def _write_reply(self, reply: Reply, lines: bytes, *, close: bool, head_only: bool) -> None:
        head = b"%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b\r\n" % (
            status_line(reply.status),
            self._server.date.line(),
            reply.content_type,
            len(reply.body),
            reply.headers,
            lines,
            b"connection: close\r\n" if close else b"",
        )
        answer = head if head_only else head + reply.body
        self._counts.bytes_out += len(answer)
        self.transport.write(answer)

    def _close(self) -> None:
        """Close once everything is written; the sweep aborts if that takes too long."""
        self._closing = self._deaf = True
        self._set_last_deadline()
        self.transport.close()

    def _linger(self) -> None:
        """Say that we are done, and read on for a while: closing with unread data would reset the connection."""
        self._closing = self._deaf = True
        self._set_last_deadline()
        self._unread = b""
        self._incoming = None
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume_reading()

    def _set_last_deadline(self) -> None:
        """When to abort. What is written has the time that a client has at any time to take something."""
        unsent = self.transport.get_write_buffer_size() > 0
        self.deadline = self.clock.read() + (self.timeouts.stream_idle_s if unsent else self.timeouts.linger_s)


_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}").fullmatch
_NEVER: Final = float("inf")
_UNREAD_HIGH_WATER: Final = 64 * 1024
"""Pipelined bytes kept for one client; reading on below it is what notices that the client has gone."""
