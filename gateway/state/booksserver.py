"""The supervisor's side of the workers' shared store: answers what their links ask of the books, and tells of changes.

Trusts who connects: the socket stands in a folder that nobody else may enter.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from gateway.state.books import Books, Told
from gateway.state.frames import frame, packed_totals, read_frame, unpacked_change, unpacked_totals
from gateway.state.stored import Stored, pack, to_bytes, to_name
from gateway.state.tally import Batch

_log = structlog.get_logger("steplane.state")

_PAGE = 500
_UNREAD_BYTES = 32 * 1024 * 1024
"""A worker that leaves so much unread is cut off: it catches up when it connects again."""


class BooksServer:
    """Books behind a Unix socket. All of it belongs to one event loop."""

    def __init__(self, now_ms: Callable[[], float] = lambda: time.time() * 1000) -> None:
        """`now_ms`: the wall clock, in milliseconds."""
        self._books = Books(now_ms, self._tell)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._subscribed: set[asyncio.StreamWriter] = set()

    async def start(self, path: Path) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._connected, path)

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while True:
                number, operation, *arguments = await read_frame(reader)
                writer.write(frame([number, *self._answer(writer, operation, arguments)]))
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            # A worker that has gone, or our own end.
            return
        finally:
            self._subscribed.discard(writer)
            del self._connections[task]
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, operation: str, arguments: list[Any]) -> list[Any]:
        try:
            if operation == "subscribe":
                self._subscribed.add(writer)
                return [None]
            return [_OPERATIONS[operation](self._books, *arguments)]
        except Exception as error:
            _log.exception("a worker's question about shared state failed", operation=operation)
            return [None, f"{operation}: {type(error).__name__}: {error}"]

    def _tell(self, told: Told) -> None:
        message = frame([0, to_bytes(told.kind), to_bytes(told.key), told.number, pack(told.stored)])
        for writer in list(self._subscribed):
            if writer.transport.get_write_buffer_size() > _UNREAD_BYTES:
                self._subscribed.discard(writer)
                writer.transport.abort()
            else:
                writer.write(message)


def _packed(stored: Stored | None) -> bytes:
    return b"" if stored is None else pack(stored)


def _look(books: Books, kind: bytes) -> Any:
    return books.look(to_name(kind))


def _records(books: Books, kind: bytes, cursor: int) -> Any:
    following, page = books.records(to_name(kind), cursor, _PAGE)
    return following, [(to_bytes(key), pack(stored)) for key, stored in page]


def _change(books: Books, kind: bytes, changes: list[Any]) -> Any:
    answers = books.change(to_name(kind), [unpacked_change(change) for change in changes])
    return [(clean, _packed(stored)) for clean, stored in answers]


def _prune(books: Books, kind: bytes, keys: list[bytes]) -> Any:
    books.prune(to_name(kind), [to_name(key) for key in keys])


def _count(books: Books, kind: bytes, origin: str, number: int, amounts: list[Any], ttl_s: float) -> Any:
    return packed_totals(books.count(to_name(kind), origin, Batch(number, unpacked_totals(amounts)), ttl_s))


def _changed_since(books: Books, kind: bytes, at_ms: float, offset: int, limit: int) -> Any:
    return [(to_bytes(key), changed) for key, changed in books.changed_since(to_name(kind), at_ms, offset, limit)]


def _totals(books: Books, kind: bytes, keys: list[bytes]) -> Any:
    return packed_totals(books.totals(to_name(kind), [to_name(key) for key in keys]))


def _lease(books: Books, key: bytes, holder: str, ttl_s: float) -> Any:
    return books.lease(to_name(key), holder, ttl_s)


def _release(books: Books, key: bytes, holder: str) -> Any:
    books.release(to_name(key), holder)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "look": _look,
    "records": _records,
    "change": _change,
    "prune": _prune,
    "count": _count,
    "changed_since": _changed_since,
    "totals": _totals,
    "lease": _lease,
    "release": _release,
}
