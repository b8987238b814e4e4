"""All breakers of this gateway, and how they change: by the table, by the clock, by hand, and by other gateways' word.

Knows nothing of evidence. Every change goes out by `notify`, which says how it is to be published; what the shared
store tells, our own changes included, comes in by `apply`.

How gateways agree. The store has one record and a rising version for each key, and the highest version is the truth.
What is forced lies on top of whatever was there, and the store tells us so at once, whether or not the others can be
reached; what is advanced lies on top of what it began from, or is lost. So a word is taken when its version is higher
than all that were heard of before, and else it is old: a trip of our own is undone by nothing that came before it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from gateway.breaker.advice import said_of
from gateway.breaker.audit import AuditEntry, AuditLog
from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.record import BREAKER, BreakerRecord, Kind, State
from gateway.breaker.signatures import Breaker, Registry
from gateway.breaker.transitions import Event, Happening, Publish, after, row_of

log = structlog.get_logger("steplane.breaker")

Clock = Callable[[], float]

_NEVER = float("inf")
_DUE_AT_ONCE = 50
"""Breakers that one `tick` works on, about two milliseconds; a request of any other brings it up to date itself."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A breaker went from `before` to what `record` says. `event`: None when another gateway told of it.

    publish:          how the others are to be told.
    expected_version: of the store, that the transition began from; for `Publish.advance`.
    """

    record: BreakerRecord
    before: State
    event: Event | None
    publish: Publish
    expected_version: int

    @property
    def ttl_s(self) -> float | None:
        """How long the shared store must keep the record; None: for as long as it keeps records anyhow, some weeks."""
        return _NEVER if self.record.state is State.pinned else None

    @property
    def tripped(self) -> bool:
        """Whether what runs of it outside quarantine must be ended, or left, by the pool's policy."""
        return self.before is State.closed and self.record.state is not State.closed


class Ledger:
    """See the module. `clock` is monotonic, `wall` the time of day, both in seconds."""

    def __init__(self, policy: BreakerPolicy, clock: Clock, wall: Clock, notify: Callable[[Transition], None]) -> None:
        self.signatures = Registry(Kind.signature, policy.bounds)
        self.tenants = Registry(Kind.tenant, policy.bounds)
        self.audit = AuditLog(policy.bounds.audit)
        self._policy = policy
        self._clock = clock
        self._wall = wall
        self._notify = notify

    def __iter__(self) -> Iterator[BreakerRecord]:
        """All that bar somebody."""
        for registry in (self.tenants, self.signatures):
            for breaker in registry.barred.values():
                yield breaker.record

    def reconfigure(self, policy: BreakerPolicy) -> None:
        """Go by another policy from the next event on; records stay as they are. Bounds are those of the start."""
        self._policy = policy

    def of(self, kind: Kind) -> Registry:
        """The breakers of one kind."""
        return self.signatures if kind is Kind.signature else self.tenants

    def happen(self, breaker: Breaker, happening: Happening) -> bool:
        """Take the row that the table has for it; False when there is none, and nothing changes."""
        before = breaker.record
        row = row_of(before, happening.event)
        if row is None:
            return False
        record = after(before, row, happening, self._policy)
        self._place(breaker, record)
        self._tell(before, record, happening.event, row.publish, breaker.version)
        return True

    def by_hand(
        self, kind: Kind, key: str, event: Event, author: str, reason: str, wait_s: float | None = None
    ) -> BreakerRecord:
        """What a person does; the record afterwards. Raises ValueError, which says what was wrong with the request."""
        if not key:
            raise ValueError(f"{event.value} needs the name of a {kind.value}")
        if not author or author == BREAKER:
            raise ValueError(f"{event.value} of {kind.value} {key!r} needs an author other than {BREAKER!r}")
        if wait_s is not None and not 0 < wait_s < _NEVER:
            raise ValueError(f"{kind.value} {key!r} can't be quarantined for {wait_s!r} seconds: use a positive number")
        registry = self.of(kind)
        breaker = registry.find_or_new(key)
        if event is Event.pin and breaker.record.state is not State.pinned and not registry.may_pin:
            raise ValueError(
                f"{kind.value} {key!r} can't be pinned: {self._policy.bounds.pinned} are, which is the bound; "
                "release some, or add it for a time"
            )
        self.happen(breaker, Happening(event, self._wall(), None, author, reason, wait_s))
        return breaker.record

    def apply(self, version: int, record: BreakerRecord) -> bool:
        """What the store has under a key, in any order and as often as it may come. True when it changed anything."""
        registry = self.of(record.kind)
        breaker = registry.find_or_new(record.key)
        if version <= breaker.version:
            return False
        breaker.version = version
        before = breaker.record
        if record == before:
            return False
        self._place(breaker, record)
        self._tell(before, record, None, Publish.none, version)
        return True

    def tick(self) -> None:
        """What the passing of time does to those that nobody asks for."""
        now_s = self._clock()
        for registry in (self.signatures, self.tenants):
            for breaker in registry.due(now_s, _DUE_AT_ONCE):
                self.bring_up_to_date(breaker, now_s)

    def bring_up_to_date(self, breaker: Breaker, now_s: float) -> None:
        """What the passing of time has done to one breaker."""
        registry, record = self.of(breaker.record.kind), breaker.record
        if record.state is State.open and record.until is not None:
            # At the moment that the record names, not now: all gateways arrive at the same record.
            self.happen(breaker, Happening(Event.wait_over, record.until))
        elif record.state is State.half_open:
            last_s = max(breaker.asked_s, breaker.probe_due_s)
            until_s = last_s + self._policy.probing.unasked_s
            if until_s <= now_s:
                self.happen(breaker, Happening(Event.unasked, self._wall()))
            else:
                registry.plan(breaker, until_s)
        elif record.state is State.closed:
            registry.drop(breaker)

    # --- inside

    def _place(self, breaker: Breaker, record: BreakerRecord) -> None:
        registry = self.of(record.kind)
        gone = registry.place(breaker, record)
        if gone is not None:
            log.warning("breaker_let_go", kind=record.kind.value, key=gone.record.key, bound=self._policy.bounds.barred)
            self.happen(gone, Happening(Event.let_go, self._wall()))
        now_s, now = self._clock(), self._wall()
        until_s = breaker.probe_due_s = _NEVER
        if record.state is State.open and record.until is not None:
            # Wall clocks differ between machines: never wait for longer than the wait was.
            left_s = min(record.until - now, record.until - record.since)
            until_s = now_s + max(0.0, left_s)
        elif record.state is State.half_open and record.next_probe is not None:
            left_s = min(record.next_probe - now, self._policy.probing.max_s)
            breaker.probe_due_s = now_s + max(0.0, left_s)
            until_s = breaker.probe_due_s + self._policy.probing.unasked_s
        elif record.state is State.closed:
            back_off = self._policy.back_off
            until_s = now_s + min(back_off.forget_s, (record.trips + 1) * back_off.forgive_s)
        registry.plan(breaker, until_s)

    def _tell(
        self, before: BreakerRecord, record: BreakerRecord, event: Event | None, publish: Publish, version: int
    ) -> None:
        name = event.value if event is not None else "told"
        why = record.reason if record.author != BREAKER else said_of(record.trip) if record.trip is not None else ""
        self.audit.add(
            AuditEntry(
                at=self._wall(),
                author=record.author,
                event=name,
                kind=record.kind,
                key=record.key,
                before=before.state,
                after=record.state,
                why=why,
                foreign=event is None,
            )
        )
        if before.state is not record.state:
            log.info(
                "breaker",
                kind=record.kind.value,
                key=record.key,
                before=before.state.value,
                after=record.state.value,
                by=name,
                author=record.author,
                why=why,
            )
        self._notify(Transition(record, before.state, event, publish, version))
