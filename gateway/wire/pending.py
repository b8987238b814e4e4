"""An exchange that has no connection yet: it waits for one that gets free, or one is being opened for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from gateway.wire.exchange import Exchange
    from gateway.wire.upstream import Upstream


class Pending:
    """What `Upstream.connect` returns; `exchange` is None where a connection is opened for whoever comes next.

    deadline: the loop's time until which it waits for its turn.
    """

    __slots__ = ("_upstream", "deadline", "exchange", "task")

    def __init__(self, upstream: Upstream, exchange: Exchange | None, deadline: float) -> None:
        self._upstream = upstream
        self.exchange = exchange
        self.deadline = deadline
        self.task: asyncio.Task[None] | None = None
        """Opens the connection; None while it waits."""

    def cancel(self) -> None:
        """The exchange wants none any more, and is told nothing."""
        if self.task is not None:
            self.task.cancel()
        else:
            self._upstream.leave(self)
