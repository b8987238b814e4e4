"""What one gateway knows of the records of one kind, and which of its own changes Redis has not taken yet.

Pure: no I/O. The theory in short:

- Redis decides. A *force* is shown here before Redis has taken it, an *advance* only after.
- For each key at most one force and one advance wait, the last ones: what waits is bounded by the number of keys.
- Each change has a token. Sending it again after an unknown outcome changes nothing, because Redis knows the token.
- Each change names its *ground*, the token of what it was made upon. An advance is applied only upon its ground; one
  that follows a force of our own only if that force found its ground, too. So no advance undoes a force that its
  author did not know of.
- A record that Redis has lost, or knows an older state of, is *restored*. Two gateways may then disagree: the record
  with the later force wins, else the later version.
- The version that was shown is told to Redis, which goes above it. So what is shown only grows.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from gateway.state.store import Decided, Record
from gateway.state.stored import NO_CHANGE, Stored

_UNKNOWN_GROUND = "?"
"""Equals no token: what a change is made upon if others have changed it without our knowledge."""

_FADING_MS = 1000.0
"""With less than this to live a record counts as over, since Redis may see its end before us."""

_EXAMINE = 2000
"""So many keys are examined at a time for having expired."""

_LOOK_AT = 64
"""Of so many of the oldest keys one that is published is forgotten, if there is one."""


class Operation(StrEnum):
    """How a change is to be applied, as `scripts.py` names it."""

    force = "force"
    advance = "advance"
    restore = "restore"


@dataclass(frozen=True, slots=True)
class Change:
    """One change to be sent.

    ground:  token that the record has if nobody else has changed it since.
    version: force: the version shown, which the result must reach; restore: the record's own. Unused by advance.
    ttl_s:   time to live from now on, `math.inf` for ever.
    fence, fence_token: restore only.
    """

    operation: Operation
    key: str
    token: str
    ground: str
    version: int
    ttl_s: float
    value: bytes
    fence: int = 0
    fence_token: str = NO_CHANGE


@dataclass(slots=True)
class _Force:
    token: str
    ground: str
    version: int
    ttl_s: float
    value: bytes


@dataclass(slots=True)
class _Advance:
    token: str
    expected: int
    ttl_s: float
    value: bytes
    decided: Decided | None


@dataclass(slots=True)
class _Entry:
    """One key.

    shown:  the last version that was reported.
    stored: the newest state known of Redis.
    lost:   Redis may not have it, or has another that can't have come of it.
    flying: the advance that was sent and is not answered yet; it is `advance`, unless that was replaced meanwhile.
    """

    shown: int = 0
    stored: Stored | None = None
    lost: bool = False
    force: _Force | None = None
    advance: _Advance | None = None
    flying: _Advance | None = None

    @property
    def token(self) -> str:
        return self.stored.token if self.stored is not None else NO_CHANGE

    @property
    def version(self) -> int:
        return self.stored.version if self.stored is not None else 0


@dataclass(slots=True)
class Ledger:
    """The records of one kind. `report` is called with key, version and value; `settle` with an advance's outcome.

    new_token: a token that no gateway has ever used.
    now_ms:    Redis' wall clock, as well as it is known.
    capacity:  keys that are kept; beyond it those unchanged for longest are forgotten here, published ones first.
    dropped:   keys forgotten before they were published.
    """

    report: Callable[[str, int, bytes], None]
    settle: Callable[[Decided, bool], None]
    new_token: Callable[[], str]
    now_ms: Callable[[], float]
    capacity: int
    dropped: int = 0
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _unsent: dict[str, None] = field(default_factory=dict)
    _unexamined: list[str] = field(default_factory=list)
    """Keys that `expire` has yet to look at."""

    def force(self, key: str, value: bytes, ttl_s: float) -> int:
        """Put a value on top, and show it; its version."""
        entry = self._touch(key)
        self._give_up_advance(entry)
        ground = entry.force.ground if entry.force is not None else entry.token
        entry.shown = max(entry.shown, entry.version) + 1
        entry.force = _Force(self.new_token(), ground, entry.shown, ttl_s, value)
        self._unsent[key] = None
        self.report(key, entry.shown, value)
        return entry.shown

    def advance(self, key: str, expected: int, value: bytes, ttl_s: float, decided: Decided | None) -> None:
        """Note an advance to be sent; refuse it at once where another version is shown."""
        record = self.record(key)
        advance = _Advance(self.new_token(), expected, ttl_s, value, decided)
        if expected != (record.version if record is not None else 0):
            self._settle(advance, False)
            return
        entry = self._touch(key)
        self._give_up_advance(entry)
        entry.advance = advance
        self._unsent[key] = None

    def record(self, key: str) -> Record | None:
        """What is shown of a key."""
        entry = self._entries.get(key)
        return self._record(entry) if entry is not None else None

    def records(self) -> dict[str, Record]:
        """What is shown of all keys."""
        shown = ((key, self._record(entry)) for key, entry in self._entries.items())
        return {key: record for key, record in shown if record is not None}

    @property
    def pending(self) -> int:
        """Keys with something that Redis hasn't taken."""
        return len(self._unsent)

    def to_send(self, limit: int) -> list[Change]:
        """What is to be sent next, at most one change for each key. Offered again until `answered`; one list at a time:
        when its answers can't come any more, `unanswered` says so."""
        changes: list[Change] = []
        while self._unsent and not changes:
            for key in list(islice(self._unsent, limit)):
                change = self._next_change(key, self._entries[key])
                if change is None:
                    del self._unsent[key]
                else:
                    changes.append(change)
        return changes

    def answered(self, change: Change, clean: bool, stored: Stored | None) -> None:
        """Take Redis' answer: the state of the record after the change.

        clean: force: it found its ground; advance: it was applied; restore: means nothing.
        """
        entry = self._entries.get(change.key)
        if entry is None:
            return
        # To a restore Redis answers by its decision between the two; what else it tells may be of a time before one.
        entry.lost = stored is None or not self._learn(entry, stored, decided=change.operation is Operation.restore)
        flown = entry.flying
        match change.operation:
            case Operation.force:
                self._force_answered(entry, change, clean)
            case Operation.advance:
                self._advance_answered(entry, clean)
            case Operation.restore:
                pass
        if not entry.lost and entry.force is None and entry.advance is None:
            self._unsent.pop(change.key, None)
        self._show(change.key, entry)
        if flown is not None and change.operation is Operation.advance:
            self._settle(flown, clean)

    def unanswered(self) -> None:
        """The last `to_send` will not be answered any more, and its changes may have been applied or not."""
        for key in self._unsent:
            entry = self._entries[key]
            if entry.flying is not None and entry.flying is not entry.advance:
                self._settle(entry.flying, False)
            entry.flying = None

    def heard(self, key: str, stored: Stored) -> None:
        """Take a record that Redis told of, in whatever order and however often."""
        if stored.is_expired(self.now_ms()):
            return
        known = self._entries.get(key)
        if known is not None and known.stored is not None and stored.version <= known.version:
            # News of a new life, if the one known here is over; else late news.
            if self._is_over(known.stored) and stored.token != known.token and key not in self._unsent:
                del self._entries[key]
            elif stored.version < known.version:
                return
        entry = self._touch(key)
        if not self._learn(entry, stored, decided=False):
            self._is_lost(key, entry)
        self._show(key, entry)

    def restore_all_but(self, found: Collection[tuple[str, str]]) -> None:
        """Have everything restored that Redis doesn't have as it is known here. `found`: the keys and tokens it has."""
        for key, entry in self._entries.items():
            if entry.stored is not None and (key, entry.stored.token) not in found:
                self._is_lost(key, entry)

    def expire(self) -> list[str]:
        """Forget what has outlived its time, and name it. What waits to be sent stays.

        Looks at a part of the keys each time, so that it never takes long.
        """
        now_ms = self.now_ms()
        if not self._unexamined:
            self._unexamined = list(self._entries)
        part, self._unexamined = self._unexamined[-_EXAMINE:], self._unexamined[:-_EXAMINE]
        expired = []
        for key in part:
            entry = self._entries.get(key)
            if entry is None or entry.stored is None or key in self._unsent:
                continue
            if entry.stored.is_expired(now_ms):
                del self._entries[key]
                expired.append(key)
        return expired

    def _next_change(self, key: str, entry: _Entry) -> Change | None:
        force, advance, stored = entry.force, entry.advance, entry.stored
        if force is not None:
            return Change(Operation.force, key, force.token, force.ground, force.version, force.ttl_s, force.value)
        if entry.lost and stored is not None and not self._is_over(stored):
            return Change(
                operation=Operation.restore,
                key=key,
                token=stored.token,
                ground=NO_CHANGE,
                version=stored.version,
                ttl_s=(stored.expires_ms - self.now_ms()) / 1000 if stored.expires_ms else math.inf,
                value=stored.value,
                fence=stored.fence,
                fence_token=stored.fence_token,
            )
        if advance is None:
            return None
        # Its own token stands there if it was applied and the answer got lost.
        if entry.version != advance.expected and entry.token != advance.token:
            self._give_up_advance(entry)
            return None
        entry.flying = advance
        ttl_s, value = advance.ttl_s, advance.value
        return Change(Operation.advance, key, advance.token, entry.token, advance.expected, ttl_s, value)

    def _is_lost(self, key: str, entry: _Entry) -> None:
        entry.lost = True
        self._unsent[key] = None

    def _force_answered(self, entry: _Entry, change: Change, clean: bool) -> None:
        force = entry.force
        if force is None:
            return
        if force.token != change.token:
            # There is a later one by now, made upon the one that was sent.
            force.ground = change.token if clean else _UNKNOWN_GROUND
            return
        entry.force = None
        if not clean:
            self._give_up_advance(entry)

    def _advance_answered(self, entry: _Entry, applied: bool) -> None:
        flown, entry.flying = entry.flying, None
        if entry.advance is flown:
            entry.advance = None
        elif entry.advance is not None and flown is not None and applied and entry.advance.expected == flown.expected:
            # Made here before the answer to the first one came: it goes on from there.
            entry.advance.expected = entry.version

    def _learn(self, entry: _Entry, told: Stored, *, decided: bool) -> bool:
        """Take what Redis has for known, if it can have come of what is known. False if the two need a decision."""
        known = entry.stored
        if known is None:
            entry.stored = told
            return True
        # A force that is known here and stands nowhere in the other's past must not be forgotten.
        descends = told.fence > known.fence or told.fence_token == known.fence_token
        if told.version > known.version and (descends or decided):
            entry.stored = told
            return True
        return told.token == known.token or decided

    def _show(self, key: str, entry: _Entry) -> None:
        stored = entry.stored
        # While a force of our own is under way it is what holds, whatever came before it.
        if entry.force is None and stored is not None and stored.version > entry.shown:
            entry.shown = stored.version
            self.report(key, stored.version, stored.value)

    def _record(self, entry: _Entry) -> Record | None:
        if entry.force is not None:
            return Record(entry.force.version, entry.force.value)
        stored = entry.stored
        if stored is None or stored.is_expired(self.now_ms()):
            return None
        return Record(stored.version, stored.value)

    def _is_over(self, stored: Stored) -> bool:
        return stored.is_expired(self.now_ms() + _FADING_MS)

    def _settle(self, advance: _Advance, applied: bool) -> None:
        if advance.decided is not None:
            self.settle(advance.decided, applied)

    def _give_up_advance(self, entry: _Entry) -> None:
        # One that was sent already hears the answer.
        if entry.advance is not None and entry.advance is not entry.flying:
            self._settle(entry.advance, False)
        entry.advance = None

    def _touch(self, key: str) -> _Entry:
        """The entry of a key, made if need be, and last in the order in which entries are forgotten."""
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = _Entry()
            if len(self._entries) >= self.capacity:
                self._forget_one()
        self._entries[key] = entry
        return entry

    def _forget_one(self) -> None:
        oldest = list(islice(self._entries, _LOOK_AT))
        key = next((key for key in oldest if key not in self._unsent), oldest[0])
        entry = self._entries.pop(key)
        if key in self._unsent:
            del self._unsent[key]
            self.dropped += 1
            self._give_up_advance(entry)
