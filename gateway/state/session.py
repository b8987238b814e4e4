"""The life of one connection to the shared store: hear what others change, publish what changed here, catch up.

Owns the order of what is exchanged. Ends by raising, whatever goes wrong; the next session catches up from scratch.
Changes are heard by subscription. The store counts the changes of each kind, and every message tells its number, so
that a regular look at the count shows whether one was lost, and whether the store was emptied.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import structlog

from gateway.retry.pauses import Pauses
from gateway.state.health import Health
from gateway.state.knowledge import Knowledge
from gateway.state.leases import Lease, Leases
from gateway.state.ledger import Change, Ledger
from gateway.state.link import Link
from gateway.state.stored import unpack
from gateway.state.tally import Tally

_CHANGES = 64
"""Records in one exchange: few enough that the store serves others between two of them."""

_COUNTERS = 100
"""Keys of counters in one exchange."""

_MESSAGES = 50
"""So many messages are taken in one turn of the event loop."""

_CHANGED_PAGE = 1000
_PRUNE_PAGE = 1000

_REREAD_MS = 1000.0
"""Counters are read again if they changed so little before the newest one that was read: clocks step."""

_log = structlog.get_logger("steplane.state")


class MissedChangesError(Exception):
    """Changes were made that no message told of: everything has to be read anew."""


@dataclass(slots=True)
class _Heard:
    """How far the changes of one kind were heard. `due`: the number that must have been reached at the next look."""

    number: int
    due: int


@dataclass(slots=True)
class Session:
    """One link's life.

    changed:   set whenever something waits to be sent.
    ready:     called when all was caught up.
    published: set when nothing waited any more.
    """

    link: Link
    knowledge: Knowledge
    leases: Leases
    health: Health
    clock: Callable[[], float]
    pauses: Pauses
    look_s: float
    count_s: float
    changed: asyncio.Event
    ready: Callable[[], None]
    published: asyncio.Event = field(default_factory=asyncio.Event)
    _delivering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _heard: dict[str, _Heard] = field(default_factory=dict)
    _early: dict[str, int] = field(default_factory=dict)
    """Numbers of messages of a kind that came before all was caught up."""
    _counted_to_ms: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Exchange until something fails; raises what did, in a group."""
        await self.link.subscribe()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen(), name="shared state: listen")
            await self._introduce()
            for kind, ledger in list(self.knowledge.ledgers.items()):
                await self._catch_up(kind, ledger)
            self.ready()
            tasks.create_task(self._publish(), name="shared state: publish")
            tasks.create_task(self._look_regularly(), name="shared state: look")
            tasks.create_task(self._count_regularly(), name="shared state: count")

    async def flush(self) -> None:
        """Return when all that waits is delivered, counters too, which else have their time."""
        for kind, tally in list(self.knowledge.tallies.items()):
            await self._deliver(kind, tally)
        while self.knowledge.pending:
            self.published.clear()
            await self.published.wait()

    async def lease(self, lease: Lease, ttl_s: float) -> bool:
        """Ask for a lease. Raises what the link does."""
        return await self.link.lease(lease.key, lease.holder, ttl_s)

    async def _introduce(self) -> None:
        try:
            await self.link.introduce()
        except self.link.failures as error:
            if not self.link.is_refusal(error):
                raise
            self.health.ill(error)

    async def _listen(self) -> None:
        for turn in count():
            if turn % _MESSAGES == 0:
                # Messages that have come already are read without a pause, and requests must not wait for them all.
                await asyncio.sleep(0)
            message = await self.link.message()
            kind, number = message.kind, message.number
            ledger = self.knowledge.ledgers.get(kind)
            if ledger is None:
                continue
            ledger.heard(message.key, unpack(message.packed))
            if ledger.pending:
                self.changed.set()
            heard = self._heard.get(kind)
            if heard is None:
                self._early[kind] = number
            elif number > heard.number + 1:
                raise MissedChangesError(f"changes {heard.number + 1} to {number - 1} of {kind} were not heard")
            else:
                heard.number = max(heard.number, number)

    async def _catch_up(self, kind: str, ledger: Ledger) -> None:
        """Read all records of a kind, and have those restored that aren't there."""
        number = await self._look(kind)
        # Whatever was published since the subscription was heard, also what is newer than this look.
        number = max(number, self._early.pop(kind, 0))
        self._heard[kind] = _Heard(number, number)
        found: set[tuple[str, str]] = set()
        cursor, more = 0, True
        while more:
            cursor, page = await self.link.records(kind, cursor)
            for key, stored in page:
                found.add((key, stored.token))
                ledger.heard(key, stored)
            more = cursor != 0
        ledger.restore_all_but(found)
        self.changed.set()

    async def _look(self, kind: str) -> int:
        """The number of changes of a kind so far."""
        began = self.clock()
        now_ms, number = await self.link.look(kind)
        self.health.latency_ms = (self.clock() - began) * 1000
        self.knowledge.set_store_ms(now_ms)
        return number

    async def _look_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.look_s)
            for kind, ledger in list(self.knowledge.ledgers.items()):
                heard = self._heard.get(kind)
                if heard is None:
                    await self._catch_up(kind, ledger)
                    continue
                if heard.number < heard.due:
                    raise MissedChangesError(f"changes {heard.number + 1} to {heard.due} of {kind} were not heard")
                before = heard.number
                heard.due = await self._look(kind)
                if heard.due < before:
                    raise MissedChangesError(f"the store has forgotten changes {heard.due + 1} to {before} of {kind}")
                await self._prune(kind, ledger.expire())

    async def _prune(self, kind: str, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _PRUNE_PAGE):
            await self.link.prune(kind, keys[at : at + _PRUNE_PAGE])

    async def _publish(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            try:
                for kind, ledger in list(self.knowledge.ledgers.items()):
                    while changes := ledger.to_send(_CHANGES):
                        await self._send(kind, ledger, changes)
                for lease in self.leases.to_release():
                    await self.link.release(lease.key, lease.holder)
                    self.leases.released(lease)
            except self.link.failures as error:
                if not self.link.is_refusal(error):
                    raise
                self.health.ill(error)
                await asyncio.sleep(self.pauses.next_s())
                self.changed.set()
            else:
                self.pauses.reset()
                self.health.well()
                self.published.set()

    async def _send(self, kind: str, ledger: Ledger, changes: Sequence[Change]) -> None:
        try:
            answers = await self.link.change(kind, changes)
        except BaseException:
            ledger.unanswered()
            raise
        for change, (clean, stored) in zip(changes, answers, strict=True):
            ledger.answered(change, clean, stored)

    async def _count_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.count_s)
            for kind, tally in list(self.knowledge.tallies.items()):
                try:
                    await self._deliver(kind, tally)
                    await self._read_counters(kind, tally)
                except self.link.failures as error:
                    if not self.link.is_refusal(error):
                        raise
                    self.health.ill(error)
                    self.changed.set()
                tally.expire()

    async def _deliver(self, kind: str, tally: Tally) -> None:
        # One at a time: an answer belongs to the batch that is under way.
        async with self._delivering:
            while batch := tally.next_batch(_COUNTERS):
                tally.delivered(await self.link.count(kind, self.knowledge.origin, batch, tally.ttl_s))

    async def _read_counters(self, kind: str, tally: Tally) -> None:
        """Read the counters that have changed since the last time."""
        newest = self._counted_to_ms.get(kind, 0.0)
        score, offset = newest - _REREAD_MS, 0
        while True:
            page = await self.link.changed_since(kind, score, offset, _CHANGED_PAGE)
            keys = [key for key, _ in page]
            for at in range(0, len(keys), _COUNTERS):
                tally.read(await self.link.totals(kind, keys[at : at + _COUNTERS]))
            if page:
                newest = max(newest, page[-1][1])
            if len(page) < _CHANGED_PAGE:
                break
            # By score, since entries move to the end while this goes on; by offset only within one score.
            last = page[-1][1]
            score, offset = (score, offset + len(page)) if last == score else (last, 0)
        self._counted_to_ms[kind] = newest
