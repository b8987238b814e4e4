"""The life of one connection to the shared Redis: hear what others change, publish what changed here, catch up.

Owns the order of what is exchanged. Ends by raising, whatever goes wrong; the next session catches up from scratch.
Changes are heard by subscription. Redis counts the changes of each kind, and every message tells its number, so that a
regular look at the count shows whether one was lost, and whether Redis was emptied.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import structlog

from gateway.state import scripts
from gateway.state.backoff import Backoff
from gateway.state.health import Health
from gateway.state.keys import Keys
from gateway.state.knowledge import Knowledge
from gateway.state.leases import Lease, Leases
from gateway.state.ledger import Change, Ledger
from gateway.state.link import FAILURES, Link, is_refusal
from gateway.state.stored import to_bytes, to_name, unpack
from gateway.state.tally import Batch, Tally

_CHANGES = 64
"""Records in one exchange: few enough that Redis serves others between two of them."""

_COUNTERS = 100
"""Keys of counters in one exchange."""

_MESSAGES = 50
"""So many messages are taken in one turn of the event loop."""

_CHANGED_PAGE = 1000
_PRUNE_PAGE = 1000

_REREAD_MS = 1000.0
"""Counters are read again if they changed so little before the newest one that was read: clocks step."""

_BATCH_NUMBER_MS = 3_600_000
"""How long Redis knows that a batch was delivered: far longer than anybody tries to deliver it again."""

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
    keys: Keys
    clock: Callable[[], float]
    backoff: Backoff
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
        await self.link.subscribe(self.keys.channel)
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
        """Ask for a lease. Raises `FAILURES`."""
        keys = [self.keys.instance, self.keys.lease(lease.key)]
        return bool(await self.link.call(scripts.LEASE, keys, [lease.holder, _milliseconds(ttl_s)]))

    async def _introduce(self) -> None:
        # Asked for no time at all, nothing is leased: a server that is new starts its time of granting none.
        try:
            await self.link.call(scripts.LEASE, [self.keys.instance, self.keys.lease("")], ["", 0])
        except FAILURES as error:
            if not is_refusal(error):
                raise
            self.health.ill(error)

    async def _listen(self) -> None:
        for turn in count():
            if turn % _MESSAGES == 0:
                # Messages that have come already are read without a pause, and requests must not wait for them all.
                await asyncio.sleep(0)
            message = await self.link.message()
            head, _, rest = message.partition(b"\n")
            kind_length, key_length, number = map(int, head.split(b" "))
            kind = to_name(rest[:kind_length])
            ledger = self.knowledge.ledgers.get(kind)
            if ledger is None:
                continue
            key = to_name(rest[kind_length : kind_length + key_length])
            ledger.heard(key, unpack(rest[kind_length + key_length :]))
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
            cursor, page = await self.link.scan(self.keys.records(kind), cursor)
            for name, packed in page.items():
                if not name.startswith(b"="):
                    continue
                try:
                    key, stored = to_name(name[1:]), unpack(packed)
                except ValueError as error:
                    _log.warning("passed over a record of shared state", kind=kind, error=str(error))
                    continue
                found.add((key, stored.token))
                ledger.heard(key, stored)
            more = cursor != 0
        ledger.restore_all_but(found)
        self.changed.set()

    async def _look(self, kind: str) -> int:
        """The number of changes of a kind so far."""
        began = self.clock()
        now_ms, number = await self.link.call(scripts.LOOK, [self.keys.records(kind)], [])
        self.health.latency_ms = (self.clock() - began) * 1000
        self.knowledge.set_redis_ms(float(now_ms))
        return int(number)

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
                    raise MissedChangesError(f"Redis has forgotten changes {heard.due + 1} to {before} of {kind}")
                await self._prune(kind, ledger.expire())

    async def _prune(self, kind: str, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _PRUNE_PAGE):
            page = [to_bytes(key) for key in keys[at : at + _PRUNE_PAGE]]
            await self.link.call(scripts.PRUNE, [self.keys.records(kind)], page)

    async def _publish(self) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            try:
                for kind, ledger in list(self.knowledge.ledgers.items()):
                    while changes := ledger.to_send(_CHANGES):
                        await self._send(kind, ledger, changes)
                for lease in self.leases.to_release():
                    await self.link.call(scripts.RELEASE, [self.keys.lease(lease.key)], [lease.holder])
                    self.leases.released(lease)
            except FAILURES as error:
                if not is_refusal(error):
                    raise
                self.health.ill(error)
                await asyncio.sleep(self.backoff.next_pause_s())
                self.changed.set()
            else:
                self.backoff.reset()
                self.health.well()
                self.published.set()

    async def _send(self, kind: str, ledger: Ledger, changes: Sequence[Change]) -> None:
        arguments: list[bytes | str | int | float] = [self.keys.channel, to_bytes(kind)]
        for change in changes:
            arguments += [change.operation, to_bytes(change.key), change.token, change.ground, change.version]
            arguments += [_milliseconds(change.ttl_s), change.value, change.fence, change.fence_token]
        try:
            answers = await self.link.call(scripts.CHANGE, [self.keys.records(kind)], arguments)
        except BaseException:
            ledger.unanswered()
            raise
        for at, change in enumerate(changes):
            clean, packed = answers[2 * at : 2 * at + 2]
            ledger.answered(change, bool(clean), unpack(packed) if packed else None)

    async def _count_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.count_s)
            for kind, tally in list(self.knowledge.tallies.items()):
                try:
                    await self._deliver(kind, tally)
                    await self._read_counters(kind, tally)
                except FAILURES as error:
                    if not is_refusal(error):
                        raise
                    self.health.ill(error)
                    self.changed.set()
                tally.expire()

    async def _deliver(self, kind: str, tally: Tally) -> None:
        # One at a time: an answer belongs to the batch that is under way.
        async with self._delivering:
            while batch := tally.next_batch(_COUNTERS):
                tally.delivered(await self._deliver_batch(kind, tally, batch))

    async def _deliver_batch(self, kind: str, tally: Tally, batch: Batch) -> dict[str, dict[str, float]]:
        keys = [self.keys.counters(kind), self.keys.batch(kind, self.knowledge.origin)]
        arguments: list[bytes | str | int | float] = [batch.number, _milliseconds(tally.ttl_s), _BATCH_NUMBER_MS]
        for key, amounts in batch.amounts.items():
            keys.append(self.keys.counter(kind, key))
            arguments += [to_bytes(key), len(amounts)]
            for name, amount in amounts.items():
                arguments += [to_bytes(name), repr(amount)]
        answers = await self.link.call(scripts.COUNT, keys, arguments)
        return {key: _amounts(answer) for key, answer in zip(batch.amounts, answers, strict=True)}

    async def _read_counters(self, kind: str, tally: Tally) -> None:
        """Read the counters that have changed since the last time."""
        newest = self._counted_to_ms.get(kind, 0.0)
        score, offset = newest - _REREAD_MS, 0
        while True:
            page = await self.link.changed_since(self.keys.counters(kind), score, offset, _CHANGED_PAGE)
            names = [name for name, _ in page]
            for at in range(0, len(names), _COUNTERS):
                keys = [to_name(name) for name in names[at : at + _COUNTERS]]
                answers = await self.link.call(scripts.TOTALS, [self.keys.counter(kind, key) for key in keys], [])
                tally.read({key: _amounts(answer) for key, answer in zip(keys, answers, strict=True)})
            if page:
                newest = max(newest, page[-1][1])
            if len(page) < _CHANGED_PAGE:
                break
            # By score, since entries move to the end while this goes on; by offset only within one score.
            last = page[-1][1]
            score, offset = (score, offset + len(page)) if last == score else (last, 0)
        self._counted_to_ms[kind] = newest


def _milliseconds(ttl_s: float) -> int:
    """As the scripts take it: 0 for ever."""
    return 0 if math.isinf(ttl_s) else max(1, round(ttl_s * 1000))


def _amounts(answer: Sequence[bytes]) -> dict[str, float]:
    """Names and values in turn, as a script answers them."""
    return {to_name(name): float(value) for name, value in zip(answer[::2], answer[1::2], strict=True)}
