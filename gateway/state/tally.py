"""What one gateway knows of the counters of one kind: its own additions under way, and the totals of all gateways.

Pure: no I/O. Additions are collected by key and delivered in numbered batches; a batch whose outcome is unknown is
delivered again under its number, and Redis adds it once. What others have added is the difference between two readings
of a total, less what we added between them. Redis losing counters makes totals smaller; that is taken as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

_NOISE = 1e-9
"""Differences smaller than this part of a total come of adding floats in another order."""

_LINGER_S = 60.0
"""Totals are kept so much longer than Redis keeps them: one forgotten too early would be reported a second time."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Additions to be delivered together, by key and name. `number` grows by one with each."""

    number: int
    amounts: Mapping[str, Mapping[str, float]]


@dataclass(slots=True)
class _Total:
    touched_at: float
    amounts: dict[str, float]


@dataclass(slots=True)
class Tally:
    """The counters of one kind. `report` is called with key and amounts of what others have added.

    ttl_s:    how long counters outlive their last change.
    capacity: keys that are kept; what comes beyond is dropped, ours and others'.
    dropped:  additions dropped.
    """

    report: Callable[[str, Mapping[str, float]], None]
    clock: Callable[[], float]
    ttl_s: float
    capacity: int
    dropped: int = 0
    _number: int = 0
    _waiting: dict[str, dict[str, float]] = field(default_factory=dict)
    _underway: Batch | None = None
    _totals: dict[str, _Total] = field(default_factory=dict)

    def add(self, key: str, amounts: Mapping[str, float]) -> None:
        """Collect additions of our own."""
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= self.capacity:
                self.dropped += 1
                return
            waiting = self._waiting[key] = {}
        _add_to(waiting, amounts)

    def totals(self, key: str) -> dict[str, float]:
        """All that is known to have been added to a key, what is still under way included."""
        total = self._totals.get(key)
        summed = dict(total.amounts) if total is not None else {}
        if self._underway is not None:
            _add_to(summed, self._underway.amounts.get(key, {}))
        _add_to(summed, self._waiting.get(key, {}))
        return summed

    def next_batch(self, limit: int) -> Batch | None:
        """What to deliver, of at most `limit` keys; the same again until `delivered`. None if there is nothing."""
        if self._underway is None and self._waiting:
            keys = list(self._waiting)[:limit]
            self._number += 1
            self._underway = Batch(self._number, {key: self._waiting.pop(key) for key in keys})
        return self._underway

    def delivered(self, totals: Mapping[str, Mapping[str, float]]) -> None:
        """The batch has been added, and these are now the totals of its keys."""
        batch, self._underway = self._underway, None
        own = batch.amounts if batch is not None else {}
        for key, amounts in totals.items():
            self._read(key, amounts, own.get(key, {}))

    def read(self, totals: Mapping[str, Mapping[str, float]]) -> None:
        """Take totals that were read while no batch was under way."""
        for key, amounts in totals.items():
            self._read(key, amounts, {})

    def expire(self) -> None:
        """Forget totals that have outlived their time."""
        oldest = self.clock() - self.ttl_s - _LINGER_S
        # Least recently touched first, so that the first one to stay ends the search.
        for key in list(self._totals):
            if self._totals[key].touched_at > oldest:
                break
            del self._totals[key]

    def _read(self, key: str, amounts: Mapping[str, float], own: Mapping[str, float]) -> None:
        total = self._totals.pop(key, None)
        if total is None:
            if len(self._totals) >= self.capacity:
                self.dropped += 1
                return
            total = _Total(0.0, {})
        added: dict[str, float] = {}
        for name, amount in amounts.items():
            known = total.amounts.get(name, 0.0) + own.get(name, 0.0)
            if amount - known > _NOISE * abs(amount):
                added[name] = amount - known
        self._totals[key] = _Total(self.clock(), dict(amounts))
        if added:
            self.report(key, added)


def _add_to(sums: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0.0) + amount
