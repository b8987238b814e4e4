"""A worker's link to the books of its supervisor, over a Unix socket."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from gateway.state.frames import (
    frame,
    packed_change,
    packed_totals,
    read_frame,
    unpacked_totals,
)
from gateway.state.ledger import Change
from gateway.state.link import Message, Totals
from gateway.state.stored import Stored, to_bytes, to_name, unpack
from gateway.state.tally import Batch


class RefusedError(Exception):
    """The supervisor answers, but could not do what it was asked."""


FAILURES = (OSError, TimeoutError, RefusedError)
"""What a link raises when the supervisor is gone, slow or unwilling."""


class SocketLink:
    """A `Link` to a `BooksServer`. Raises `FAILURES`."""

    failures = FAILURES

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        """`timeout_s`: for each exchange."""
        self._writer = writer
        self._timeout_s = timeout_s
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()
        """Those that nobody has taken yet; None behind the last one, when the connection is gone."""
        self._reading = asyncio.create_task(self._read(reader), name="shared state: read")

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the supervisor is there and answers."""
        return isinstance(error, RefusedError)

    async def subscribe(self) -> None:
        """Hear messages from now on."""
        await self._ask("subscribe")

    async def message(self) -> Message:
        """The next message."""
        message = await self._messages.get()
        if message is None:
            self._messages.put_nowait(None)  # for whoever asks again
            raise ConnectionError("the supervisor has closed the connection")
        return message

    async def introduce(self) -> None:
        """The books are as old as their workers: there is nothing to wait for."""

    async def look(self, kind: str) -> tuple[float, int]:
        """The supervisor's clock in ms, and the number of changes of a kind so far."""
        now_ms, number = await self._ask("look", to_bytes(kind))
        return now_ms, number

    async def records(self, kind: str, cursor: int) -> tuple[int, list[tuple[str, Stored]]]:
        """A page of the records of a kind."""
        following, page = await self._ask("records", to_bytes(kind), cursor)
        return following, [(to_name(key), unpack(packed)) for key, packed in page]

    async def change(self, kind: str, changes: Sequence[Change]) -> list[tuple[bool, Stored | None]]:
        """Apply changes of different keys."""
        answers = await self._ask("change", to_bytes(kind), [packed_change(change) for change in changes])
        return [(clean, unpack(packed) if packed else None) for clean, packed in answers]

    async def prune(self, kind: str, keys: Sequence[str]) -> None:
        """Remove those of these records whose time is over."""
        await self._ask("prune", to_bytes(kind), [to_bytes(key) for key in keys])

    async def count(self, kind: str, origin: str, batch: Batch, ttl_s: float) -> Totals:
        """Add a batch, unless `origin` has delivered it before; the totals of its keys."""
        amounts = packed_totals({key: dict(each) for key, each in batch.amounts.items()})
        return unpacked_totals(await self._ask("count", to_bytes(kind), origin, batch.number, amounts, ttl_s))

    async def changed_since(self, kind: str, at_ms: float, offset: int, limit: int) -> list[tuple[str, float]]:
        """A page of the keys of counters that have changed since."""
        page = await self._ask("changed_since", to_bytes(kind), at_ms, offset, limit)
        return [(to_name(key), changed_ms) for key, changed_ms in page]

    async def totals(self, kind: str, keys: Sequence[str]) -> Totals:
        """The counters of some keys."""
        return unpacked_totals(await self._ask("totals", to_bytes(kind), [to_bytes(key) for key in keys]))

    async def lease(self, key: str, holder: str, ttl_s: float) -> bool:
        """Whether a lease is the holder's from now on."""
        return bool(await self._ask("lease", to_bytes(key), holder, ttl_s))

    async def release(self, key: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""
        await self._ask("release", to_bytes(key), holder)

    async def close(self) -> None:
        """Let go of the connection. Never raises `FAILURES`."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        with suppress(*FAILURES):
            await self._writer.wait_closed()

    async def _ask(self, operation: str, *arguments: Any) -> Any:
        if self._reading.done():
            raise ConnectionError("the supervisor has closed the connection")
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._writer.write(frame([number, operation, *arguments]))
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writer.drain()
                return await answer
        finally:
            del self._asked[number]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, *rest = await read_frame(reader)
                if number == 0:
                    kind, key, change, packed = rest
                    self._messages.put_nowait(Message(to_name(kind), to_name(key), change, packed))
                    continue
                answer = self._asked.get(number)
                if answer is None or answer.done():
                    continue  # it came too late: nobody waits for it any more
                if len(rest) > 1:
                    answer.set_exception(RefusedError(rest[1]))
                else:
                    answer.set_result(rest[0])
        except OSError as error:
            self._fail(error)
        finally:
            self._fail(ConnectionError("the connection was closed"))
            self._messages.put_nowait(None)

    def _fail(self, error: OSError) -> None:
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(error)


async def open_link(path: Path, timeout_s: float) -> SocketLink:
    """A link to the books behind the socket at `path`. Raises `FAILURES`."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_unix_connection(path)
    return SocketLink(reader, writer, timeout_s)
