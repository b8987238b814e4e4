"""What a supervisor keeps for its workers: the records, counters and leases that they share. No I/O.

Does what scripts.py has Redis do, by the same rules (ledger.py states them), so that a worker need not know which of
the two it is linked to. Lives as long as any of its workers and so never has to fear that it has forgotten a lease.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gateway.state.ledger import Change, Operation
from gateway.state.link import Totals
from gateway.state.stored import NO_CHANGE, Stored
from gateway.state.tally import Batch

_SWEEP_EVERY = 1024
"""So many changes of counters and leases between two looks for what is over."""


@dataclass(frozen=True, slots=True)
class Told:
    """A change of a record that everybody is to hear of; `number` counts those of its kind."""

    kind: str
    key: str
    number: int
    stored: Stored


@dataclass(slots=True)
class _Counters:
    """The counters of one kind, least recently changed first."""

    by_key: dict[str, "_Counted"] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    """By gateway: the last batch that it has delivered."""


@dataclass(slots=True)
class _Counted:
    changed_ms: float
    expires_ms: float
    amounts: dict[str, float]


@dataclass(slots=True)
class _Lease:
    holder: str
    until_ms: float


class Books:
    """Each method is one indivisible act. `now_ms`: the wall clock, in milliseconds; it must not go back."""

    def __init__(self, now_ms: Callable[[], float], tell: Callable[[Told], None]) -> None:
        """`tell` hears of each change of a record before the method that made it returns."""
        self._now_ms = now_ms
        self._tell = tell
        self._records: dict[str, dict[str, Stored]] = {}
        self._numbers: dict[str, int] = {}
        self._counters: dict[str, _Counters] = {}
        self._leases: dict[str, _Lease] = {}
        self._changes_to_sweep = _SWEEP_EVERY

    def look(self, kind: str) -> tuple[float, int]:
        """The clock, and the number of changes of a kind so far."""
        return self._now_ms(), self._numbers.get(kind, 0)

    def records(self, kind: str, start: int, limit: int) -> tuple[int, list[tuple[str, Stored]]]:
        """A page of the records of a kind, and where the next one starts; 0 after the last."""
        records = self._records.get(kind, {})
        page = list(islice(records.items(), start, start + limit))
        end = start + len(page)
        return (end if end < len(records) else 0), page

    def change(self, kind: str, changes: Sequence[Change]) -> list[tuple[bool, Stored | None]]:
        """Apply changes; for each whether it was clean, and the record after it."""
        return [self._change(kind, change) for change in changes]

    def prune(self, kind: str, keys: Collection[str]) -> None:
        """Remove those of these records whose time is over."""
        now_ms, records = self._now_ms(), self._records.get(kind, {})
        for key in keys:
            stored = records.get(key)
            if stored is not None and stored.is_expired(now_ms):
                del records[key]

    def count(self, kind: str, origin: str, batch: Batch, ttl_s: float) -> Totals:
        """Add a batch, unless `origin` has delivered it before; the totals of its keys."""
        counters = self._counters.setdefault(kind, _Counters())
        if counters.delivered.get(origin) != batch.number:
            counters.delivered[origin] = batch.number
            now_ms = self._now_ms()
            for key, amounts in batch.amounts.items():
                # To the end of the order, which is that of the last change.
                counted = counters.by_key.pop(key, None)
                if counted is None or counted.expires_ms <= now_ms:
                    counted = _Counted(now_ms, now_ms, {})
                counters.by_key[key] = counted
                counted.changed_ms, counted.expires_ms = now_ms, now_ms + ttl_s * 1000
                for name, amount in amounts.items():
                    counted.amounts[name] = counted.amounts.get(name, 0.0) + amount
            self._sweep_sometimes()
        return self.totals(kind, batch.amounts)

    def changed_since(self, kind: str, at_ms: float, offset: int, limit: int) -> list[tuple[str, float]]:
        """A page of the keys of counters that have changed since, oldest first."""
        counters = self._counters.get(kind)
        if counters is None:
            return []
        newer: list[tuple[str, float]] = []
        # From the newest one back: what has not changed for long is never looked at.
        for key in reversed(counters.by_key):
            changed_ms = counters.by_key[key].changed_ms
            if changed_ms < at_ms:
                break
            newer.append((key, changed_ms))
        newer.reverse()
        return newer[offset : offset + limit]

    def totals(self, kind: str, keys: Collection[str]) -> Totals:
        """The counters of some keys."""
        counters, now_ms = self._counters.get(kind), self._now_ms()
        totals: Totals = {}
        for key in keys:
            counted = counters.by_key.get(key) if counters is not None else None
            totals[key] = dict(counted.amounts) if counted is not None and counted.expires_ms > now_ms else {}
        return totals

    def lease(self, key: str, holder: str, ttl_s: float) -> bool:
        """Whether a lease is the holder's from now on."""
        now_ms, held = self._now_ms(), self._leases.get(key)
        if held is not None and held.until_ms > now_ms:
            return False
        self._leases[key] = _Lease(holder, now_ms + ttl_s * 1000)
        self._sweep_sometimes()
        return True

    def release(self, key: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""
        held = self._leases.get(key)
        if held is not None and held.holder == holder:
            del self._leases[key]

    # --- changes of one record; `ground`, `clean` and the fence are explained in ledger.py

    def _change(self, kind: str, change: Change) -> tuple[bool, Stored | None]:
        found = self._records.get(kind, {}).get(change.key)
        current = None if found is None or found.is_expired(self._now_ms()) else found
        match change.operation:
            case Operation.force:
                return self._force(kind, change, current)
            case Operation.advance:
                return self._advance(kind, change, current)
            case Operation.restore:
                return self._restore(kind, change, current)

    def _force(self, kind: str, change: Change, current: Stored | None) -> tuple[bool, Stored]:
        if current is not None and change.token in (current.token, current.fence_token):
            return False, current
        clean = _token(current) == change.ground
        version = max(_version(current), change.version - 1) + 1
        expires_ms = self._expires_ms(change.ttl_s)
        stored = Stored(version, version, change.token, change.token, expires_ms, change.value)
        return clean, self._write(kind, change.key, stored)

    def _advance(self, kind: str, change: Change, current: Stored | None) -> tuple[bool, Stored | None]:
        if current is not None and current.token == change.token:
            return True, current
        if _token(current) != change.ground:
            return False, current
        fence, fence_token = (0, NO_CHANGE) if current is None else (current.fence, current.fence_token)
        expires_ms = self._expires_ms(change.ttl_s)
        stored = Stored(_version(current) + 1, fence, fence_token, change.token, expires_ms, change.value)
        return True, self._write(kind, change.key, stored)

    def _restore(self, kind: str, change: Change, current: Stored | None) -> tuple[bool, Stored]:
        expires_ms = self._expires_ms(change.ttl_s)
        mine = Stored(change.version, change.fence, change.fence_token, change.token, expires_ms, change.value)
        if current is None:
            return True, self._write(kind, change.key, mine)
        if current.token == change.token and current.version >= change.version:
            return True, current
        if _outweighs(mine, current):
            mine = _lifted(mine, max(mine.version, current.version + 1))
            return True, self._write(kind, change.key, mine)
        if current.version > change.version:
            return False, current
        # Another worker has shown another value under this version: what stays has to go above it.
        return False, self._write(kind, change.key, _lifted(current, change.version + 1))

    def _write(self, kind: str, key: str, stored: Stored) -> Stored:
        self._records.setdefault(kind, {})[key] = stored
        number = self._numbers[kind] = self._numbers.get(kind, 0) + 1
        self._tell(Told(kind, key, number, stored))
        return stored

    def _expires_ms(self, ttl_s: float) -> int:
        return 0 if ttl_s == float("inf") else round(self._now_ms() + max(1.0, ttl_s * 1000))

    # --- what is over

    def _sweep_sometimes(self) -> None:
        self._changes_to_sweep -= 1
        if self._changes_to_sweep > 0:
            return
        now_ms = self._now_ms()
        for counters in self._counters.values():
            _drop(counters.by_key, [key for key, each in counters.by_key.items() if each.expires_ms <= now_ms])
        _drop(self._leases, [key for key, lease in self._leases.items() if lease.until_ms <= now_ms])
        # As many changes to the next sweep as there are entries: its cost stays in proportion to the changes.
        left = len(self._leases) + sum(len(counters.by_key) for counters in self._counters.values())
        self._changes_to_sweep = max(left, _SWEEP_EVERY)


def _token(stored: Stored | None) -> str:
    return NO_CHANGE if stored is None else stored.token


def _version(stored: Stored | None) -> int:
    return 0 if stored is None else stored.version


def _outweighs(mine: Stored, current: Stored) -> bool:
    """Whether what a worker knows is to replace what stands here."""
    if mine.fence_token == current.fence_token:
        return mine.version > current.version
    if mine.fence != current.fence:
        return mine.fence > current.fence
    return mine.token == mine.fence_token and current.token != current.fence_token


def _lifted(stored: Stored, version: int) -> Stored:
    """The record under a higher version; a force's own is its fence."""
    fence = version if stored.token == stored.fence_token else stored.fence
    return replace(stored, version=version, fence=fence)


def _drop(entries: "dict[str, _Counted] | dict[str, _Lease]", keys: Sequence[str]) -> None:
    for key in keys:
        del entries[key]
