"""One HTTP/1.1 connection of the client, over which one request after the other is asked.

The dense part of the load test: it runs for every read of every stream.
"""

import asyncio
import re
from collections.abc import Callable
from typing import cast

import httptools

from loadtest.client.outcome import Outcome

_BETWEEN = re.compile(rb"\r?\n\r?\n")
_TEXT = re.compile(rb'"(?:content|reasoning_content|arguments|text)": ?"(?!")')
_ERROR = re.compile(rb'^(?:event: ?error\r?\n)?data: ?\{"(?:error|object": ?"error)"')
_MESSAGE = re.compile(rb'"message": ?"((?:[^"\\]|\\.){1,80})')
_MAX_KEPT_BYTES = 4 << 20
_MOST_SAID_BYTES = 4096


class Connection(asyncio.Protocol):
    """Asks one request at a time. `ask` before the next only once `on_done` was called and `reusable` is true."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._outcome: Outcome | None = None
        self._on_done: Callable[[], None] | None = None
        self._events = b""
        self._said = bytearray()
        self._streamed = False
        self._read_at = 0.0
        self._counted = False
        self._pace: float | None = None
        self.reusable = False

    def ask(self, request: bytes, outcome: Outcome, pace: float | None, on_done: Callable[[], None]) -> None:
        """Send `request`; `outcome` is filled in as the reply comes. `pace`: bytes a second that are read of it."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._outcome, self._on_done, self._pace = outcome, on_done, pace
        self._events = b""
        self._said.clear()
        self._streamed = self.reusable = False
        outcome.sent = self._clock()
        self._transport.write(request)

    def leave(self) -> None:
        """Close the connection, answered or not."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        """Whether something can be asked."""
        return self._transport is not None and not self._transport.is_closing()

    # ---- asyncio ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's have no base in common with asyncio's

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.leave()  # nobody has asked
            return
        self._read_at, self._counted = self._clock(), False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(f"broken HTTP: {error}")
            self.leave()
        if self._pace is not None and self._transport is not None and self._outcome is not None:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(len(data) / self._pace, self._go_on)

    def _go_on(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.reusable = False
        self._finish(f"connection lost: {error}" if error else "connection closed")

    # ---- llhttp ----

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._streamed = value.startswith(b"text/event-stream")
        elif name == b"x-steplane-pool" and self._outcome is not None:
            self._outcome.pool = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._outcome is not None and self._parser is not None:
            self._outcome.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        outcome = self._outcome
        if outcome is None:
            return
        if outcome.status != 200 and len(self._said) < _MOST_SAID_BYTES:
            self._said += body
        if outcome.reply is not None and len(outcome.reply) < _MAX_KEPT_BYTES:
            outcome.reply += body
        if not self._streamed:
            if not outcome.arrivals:
                outcome.arrivals.append(self._read_at)
            return
        *whole, self._events = _BETWEEN.split(self._events + body)
        for event in whole:
            if _TEXT.search(event):
                outcome.tokens += 1
                if not self._counted:
                    outcome.arrivals.append(self._read_at)
                    self._counted = True
            elif _ERROR.match(event):
                outcome.error = f"error event: {event[:200].decode('utf-8', 'replace')}"

    def on_message_complete(self) -> None:
        parser, outcome = self._parser, self._outcome
        if parser is None or outcome is None:
            return
        self.reusable = bool(parser.should_keep_alive()) and self._pace is None
        self._finish("" if outcome.status == 200 else f"status {outcome.status}{self._message()}")

    def _message(self) -> str:
        found = _MESSAGE.search(self._said)
        return f": {found[1].decode('utf-8', 'replace')}" if found else ""

    def _finish(self, error: str) -> None:
        outcome, on_done = self._outcome, self._on_done
        self._outcome = self._on_done = self._parser = None
        if outcome is None or on_done is None:
            return
        outcome.ended = self._clock()
        outcome.error = outcome.error or ("" if outcome.left else error)
        on_done()
