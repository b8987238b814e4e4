"""The client side: reads requests from one connection, one exchange at a time, and writes our own answers.

One deadline per connection, moved as its state changes and checked by the server's sweep, stands for every timeout:
idle, header, body, and those of the running exchange.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools
import structlog

from gateway.wire.exchange import Exchange, Handler, State
from gateway.wire.failure import Failure
from gateway.wire.message import (
    CONTINUE,
    HOP_BY_HOP,
    LAST_CHUNK,
    Headers,
    Reply,
    chunk,
    connection_options,
    error_reply,
    status_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.wire.server import Server

log = structlog.get_logger("steplane.wire")


class ClientConnection(asyncio.Protocol):
    """One client connection. Also the callbacks of its request parser."""

    __slots__ = (
        "_closing",
        "_deaf",
        "_head_bytes",
        "_headers",
        "_incoming",
        "_parser",
        "_paused",
        "_queue",
        "_refused",
        "_server",
        "_target",
        "current",
        "deadline",
        "handler",
        "limits",
        "now",
        "timeouts",
        "transport",
        "write_paused",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self.handler: Handler = server.handler
        self.limits = server.limits
        self.timeouts = server.timeouts
        self.now: Callable[[], float] = server.now
        self.transport: asyncio.Transport
        self.current: Exchange | None = None
        self.deadline = 0.0
        self.write_paused = False
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._target = b""
        self._headers: Headers = []
        self._head_bytes = 0
        self._refused: Reply | None = None
        self._closing = False
        self._deaf = False
        self._paused = False

    @property
    def draining(self) -> bool:
        """The server is going away: no further request on this connection."""
        return self._server.draining

    @property
    def peer(self) -> str:
        """The client's address, for logs and `x-forwarded-for`."""
        name = self.transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "unix"

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.limits.write_high_water_bytes)
        self.deadline = self.now() + self.timeouts.header_s
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return  # read and drop, so that our answer is not lost to a reset
        if self._incoming is None and self.current is None and not self._head_bytes:
            self.deadline = self.now() + self.timeouts.header_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last_request()
        except httptools.HttpParserCallbackError:
            log.exception("request_callback_failed")
            self._refused = error_reply(500, "the gateway failed to read this request; see its log", "internal_error")
        except httptools.HttpParserError as error:
            self._refused = self._refused or error_reply(400, f"invalid HTTP request: {error}", "bad_http")
        incoming = self._incoming
        if self._refused is None and incoming is None and not self._queue:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.max_header_bytes:
                self._refused = self._header_too_large()
        if self._refused is not None:
            self._refuse()
            return
        if incoming is not None and (self.current is None or self.current is incoming):
            self.deadline = self.now() + self.timeouts.body_s
        current = self.current
        if current is None:
            if self._queue:
                self._pump()
        elif not current.buffered:
            current.flush_body()
        if self._queue and not self._paused:
            self._pause()

    def eof_received(self) -> None:
        """A closing client looks the same as one that only stops sending: both are treated as gone."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._server.closed(self)
        self._closing = self._deaf = True
        for exchange in (self.current, self._incoming, *self._queue):
            if exchange is not None:
                exchange.leave()
        self._queue.clear()

    def pause_writing(self) -> None:
        self.write_paused = True
        if self.current is not None and self.current.connection is not None:
            self.current.connection.pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self.current is not None and self.current.connection is not None:
            self.current.connection.resume()

    # --- httptools callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []
        target, self._target = self._target, b""
        self._head_bytes = 0
        parser = self._parser
        exchange = Exchange(self, parser.get_method(), target, headers, self.now())
        self._incoming = exchange
        version = parser.get_http_version()
        exchange.http10 = version != "1.1"
        lines = exchange.forward_lines
        options: list[bytes] = []
        size = len(target)
        hosts = 0
        expects = False
        for name, value in headers:
            size += len(name) + len(value) + 4
            lower = name.lower()
            if lower in _HANDLED:
                if lower == b"content-length":
                    exchange.content_length = int(value)
                elif lower == b"transfer-encoding":
                    exchange.chunked = True
                elif lower == b"connection":
                    options.append(value)
                elif lower == b"expect":
                    expects = value.lower() == b"100-continue"
                elif lower == b"x-request-id":
                    exchange.request_id = value
                elif lower == b"host":
                    hosts += 1
                    lines.append(b"host: " + value)
                continue
            lines.append(b"%b: %b" % (name, value))
        if options and (named := connection_options(options) - _PLAIN_OPTIONS):
            exchange.forward_lines = [line for line in lines if line.partition(b":")[0].lower() not in named]
        if not target.startswith(b"/"):
            exchange.target = self._origin_form(exchange, target)
        if self._refused is None:
            self._refused = self._check_head(exchange, size, hosts)
        if self._refused is not None:
            return
        exchange.buffered = self.handler.buffers(exchange)
        if expects and not exchange.http10 and (exchange.chunked or exchange.content_length > 0):
            self.transport.write(CONTINUE)
        if not exchange.buffered:
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        exchange = self._incoming
        if exchange is None or self._refused is not None:
            return
        exchange.body_size += len(body)
        if exchange.body_size > self.limits.max_body_bytes:
            self._refused = self._body_too_large()
            return
        exchange.add_body(body)

    def on_message_complete(self) -> None:
        exchange = self._incoming
        if exchange is None or self._refused is not None:
            return
        exchange.keep_alive = self._parser.should_keep_alive()
        self._incoming = None
        exchange.body_received()
        if exchange.buffered:
            self._queue.append(exchange)

    # --- what exchanges use

    def send_reply(self, exchange: Exchange, reply: Reply) -> None:
        """Write a complete response of ours."""
        exchange.status = reply.status
        keep_alive = exchange.keep_alive and exchange.received and not self.draining
        exchange.keep_alive = keep_alive
        self._write_reply(reply, exchange.response_lines, close=not keep_alive, head_only=exchange.method == b"HEAD")

    def end_broken(self, exchange: Exchange, event: bytes) -> None:
        """End a response that cannot be completed: with `event` and a correct end, or without one if there is none."""
        exchange.keep_alive = False
        if event:
            self.transport.write(event if exchange.http10 else chunk(event) + LAST_CHUNK)
        elif exchange.http10:
            self.transport.abort()  # a plain close would look like a complete response

    def finished(self, exchange: Exchange) -> None:
        """An exchange is over: tell the handler, then turn to the next request, or close."""
        try:
            self.handler.finished(exchange)
        except Exception:
            log.exception("handler_failed", method=exchange.method.decode("latin-1"), path=exchange.path)
        if exchange is not self.current:
            return
        self.current = None
        if self._refused is not None and not self._queue and exchange.keep_alive:
            self._write_reply(self._refused, b"", close=True)
            self._linger()
        elif not exchange.keep_alive or self.draining:
            if exchange.received:
                self._close()
            else:
                self._linger()
        else:
            self._head_bytes = 0
            self.deadline = self.now() + self.timeouts.keepalive_s
            if self._queue:
                self._server.loop.call_soon(self._pump)
            elif self._paused:
                self._resume()

    def failed(self, exchange: Exchange, failure: Failure) -> None:
        """Give a failed attempt back to the handler."""
        try:
            self.handler.failed(exchange, failure)
        except Exception:
            self._handler_raised(exchange)

    def pause_body(self) -> None:
        """The upstream does not keep up with the request body."""
        self.transport.pause_reading()

    def resume_body(self) -> None:
        """The upstream takes data again."""
        if not self._paused:
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close without ceremony."""
        self.transport.abort()

    # --- what the server uses

    def expire(self) -> None:
        """The deadline has passed."""
        if self._closing:
            self.transport.abort()
        elif self._incoming is not None and (self.current is None or self.current is self._incoming):
            self._refused = error_reply(408, f"no data for {self.timeouts.body_s:g} s in the body", "request_timeout")
            self._refuse()
        elif self.current is not None:
            self.current.expire()
        elif self._head_bytes:
            self._refused = error_reply(
                408, f"the request header was not complete within {self.timeouts.header_s:g} s", "request_timeout"
            )
            self._refuse()
        else:
            self._close()

    def turn_away(self, reply: Reply) -> None:
        """Answer before any request has come, and close."""
        self._write_reply(reply, b"", close=True)
        self._linger()

    def drain(self) -> None:
        """Close if idle; else the running exchange will be the last."""
        if self.current is None and not self._queue and self._incoming is None:
            self._close()

    # --- inside

    def _pump(self) -> None:
        """Start the next exchange."""
        if self.current is not None or self._closing or not self._queue:
            return
        exchange = self.current = self._queue.popleft()
        exchange.state = State.deciding
        if exchange.received:
            self.deadline = float("inf")  # until it is forwarded, the handler keeps its time
        try:
            self.handler.handle(exchange)
        except Exception:
            self._handler_raised(exchange)
        if self._paused and not self._queue:
            self._resume()

    def _handler_raised(self, exchange: Exchange) -> None:
        log.exception("handler_failed", method=exchange.method.decode("latin-1"), path=exchange.path)
        exchange.reply(error_reply(500, "the gateway failed to handle this request; see its log", "internal_error"))

    def _pause(self) -> None:
        self._paused = True
        self.transport.pause_reading()

    def _resume(self) -> None:
        self._paused = False
        self.transport.resume_reading()

    def _check_head(self, exchange: Exchange, size: int, hosts: int) -> Reply | None:
        if size > self.limits.max_header_bytes:
            return self._header_too_large()
        if exchange.content_length > self.limits.max_body_bytes:
            return self._body_too_large()
        if exchange.method == b"CONNECT":
            return error_reply(405, "CONNECT is not supported", "method_not_allowed")
        if hosts != 1 and not exchange.http10:
            return error_reply(
                400, f"an HTTP/1.1 request has exactly one Host header, this one has {hosts}", "bad_http"
            )
        return None

    def _origin_form(self, exchange: Exchange, target: bytes) -> bytes:
        """The target as an origin server expects it (RFC 9112 section 3.2.2)."""
        scheme, separator, rest = target.partition(b"://")
        if separator and scheme.lower() in (b"http", b"https"):
            authority, slash, path = rest.partition(b"/")
            query = b""
            if not slash:
                authority, mark, query = authority.partition(b"?")
                query = mark + query
            return b"/" + path + query
        if target == b"*" and exchange.method == b"OPTIONS":
            return target
        if exchange.method != b"CONNECT":
            self._refused = error_reply(400, "the request target is neither a path nor an http URL", "bad_http")
        return target

    def _header_too_large(self) -> Reply:
        return error_reply(431, f"the request header exceeds {self.limits.max_header_bytes} bytes", "header_too_large")

    def _body_too_large(self) -> Reply:
        return error_reply(413, f"the request body exceeds {self.limits.max_body_bytes} bytes", "body_too_large")

    def _last_request(self) -> None:
        """The request wanted an upgrade, which nobody gets: it is served as it is, and nothing after it."""
        self._deaf = True
        if self._queue:
            self._queue[-1].keep_alive = False

    def _refuse(self) -> None:
        """Answer a request that cannot be read, after the exchanges before it, and close."""
        self._deaf = True
        reply, incoming = self._refused, self._incoming
        assert reply is not None
        self._incoming = None
        if incoming is not None and incoming is self.current:
            if incoming.state == State.responding:
                self.transport.abort()  # the upstream answers already, and its answer cannot be completed
            else:
                incoming.keep_alive = False
                incoming.reply(reply)
            return
        if incoming is not None and not incoming.buffered:
            self._queue.remove(incoming)
        if self.current is None and self._queue:
            self._pump()
        elif self.current is None:
            self._write_reply(reply, b"", close=True)
            self._linger()

    def _write_reply(self, reply: Reply, lines: bytes, *, close: bool, head_only: bool = False) -> None:
        head = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b%b\r\n" % (
            status_line(reply.status),
            reply.content_type,
            len(reply.body),
            reply.headers,
            lines,
            b"connection: close\r\n" if close else b"",
        )
        self.transport.write(head if head_only else head + reply.body)

    def _close(self) -> None:
        """Close once everything is written; the sweep aborts if that takes too long."""
        self._closing = self._deaf = True
        self.deadline = self.now() + self.timeouts.linger_s
        self.transport.close()

    def _linger(self) -> None:
        """Say that we are done, and read on for a while: closing with unread data would reset the connection."""
        self._closing = self._deaf = True
        self.deadline = self.now() + self.timeouts.linger_s
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume()


_PLAIN_OPTIONS = frozenset((b"close", b"keep-alive", b"upgrade", b""))
_HANDLED = HOP_BY_HOP | {b"content-length", b"expect", b"host", b"x-request-id"}
