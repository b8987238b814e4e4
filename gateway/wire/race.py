"""A second attempt at a request beside the first one, which still waits for its answer: whichever answers first is it.

A racer is an exchange of its own towards its upstream, and none towards the client: as soon as a byte of its answer has
come it gives its connection to the exchange that it runs beside, and is over. Only for requests that were read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gateway.wire.exchange import Exchange, State

if TYPE_CHECKING:
    from gateway.wire.connection import UpstreamConnection
    from gateway.wire.failure import Failure


class Judge(Protocol):
    """Who keeps the books of both attempts. Exactly one of these is called, unless the racer is withdrawn or promoted.

    Called on the event loop, like a `Handler`.
    """

    def won(self, racer: Racer) -> None:
        """Its answer is about to begin: the first attempt is over, and is not to be forwarded again."""

    def beaten(self, racer: Racer, failure: Failure) -> None:
        """It failed; the first attempt goes on."""

    def turned_down(self, racer: Racer, status: int, message: bytes) -> None:
        """It got an answer that the handler holds back; the first attempt goes on."""


class Racer(Exchange):
    """See the module. `first` is the exchange that it runs beside."""

    def __init__(self, first: Exchange, judge: Judge) -> None:
        super().__init__(first.client, first.head, first.length, first.started_at)
        self.first = first
        self.request_id = first.request_id
        self.body = first.body
        self.received = True
        self.keep_alive = first.keep_alive
        self.context = first.context
        self.state = State.deciding
        self._judge = judge
        self._promoted = False

    def run(self, send: Callable[[], None]) -> None:
        """Have `send` forward the request. The first attempt's time for its first byte runs on as it was."""
        deadline = self.client.deadline
        send()
        self.client.deadline = deadline

    def stop(self) -> None:
        """It is not needed any more: close its connection."""
        self._drop_connection()
        self.state = State.done

    def promote(self) -> None:
        """The first attempt has failed: from here on this is the first exchange's only one, and it tells its handler.

        The time for the first byte begins anew.
        """
        first, connection = self.first, self.connection
        if connection is not None:
            self.connection = None
            self.state = State.done
            first.adopt(connection, self.response_lines)
            first.client.deadline = first.client.clock.read() + first.client.timeouts.first_byte_s
            if not first.client.write_paused:
                connection.resume()
            return
        self._promoted = True
        first.take_pending(self)

    def attach(self, connection: UpstreamConnection) -> None:
        """Of the upstream: a connection is there."""
        if self._promoted:
            self.state = State.done
            self.first.attach(connection)
            return
        deadline = self.client.deadline
        super().attach(connection)
        self.client.deadline = deadline

    def begin_response(self, status: int) -> None:
        """Of the connection: the race is won."""
        connection = self.connection
        assert connection is not None
        first = self.first
        self._judge.won(self)
        self.connection = None
        self.state = State.responding
        first.adopt(connection, self.response_lines)
        self.on_read = first.on_read  # this first read is told by us
        first.keep_alive = self.keep_alive
        first.begin_response(status)

    def connect_failed(self, failure: Failure) -> None:
        """Of the upstream: there is no connection to be had."""
        self._pending = None
        self.state = State.done
        if self._promoted:
            self.first.connect_failed(failure)
        else:
            self._judge.beaten(self, failure)

    def upstream_failed(self, connection: UpstreamConnection, failure: Failure) -> None:  # noqa: ARG002 (its own)
        """Of the connection: it broke off, and has closed itself."""
        self.connection = None
        self.state = State.done
        self._judge.beaten(self, failure)

    def held(self, status: int, message: bytes) -> None:
        """Of the connection: a whole answer has come that is not for the client."""
        self.connection = None
        self.state = State.done
        self._judge.turned_down(self, status, message)

    def complete(self) -> None:
        """Of the connection: the answer that won came in one piece, and is complete."""
        self.state = State.done
        self.first.last_read = self.last_read
        self.first.bytes_out += self.bytes_out
        self.first.complete()
