"""The audit log: who did what to which breaker, when and why. A bounded ring in memory; the log file has all."""

from collections import deque
from dataclasses import dataclass

from gateway.breaker.record import BREAKER, Kind, State


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One transition. `at`: wall clock, seconds. `foreign`: another gateway told of it."""

    at: float
    author: str
    event: str
    kind: Kind
    key: str
    before: State
    after: State
    why: str
    foreign: bool = False


class AuditLog:
    """The newest `capacity` entries of the breakers themselves, and as many of people, which those never push out."""

    def __init__(self, capacity: int) -> None:
        self._of_breakers: deque[AuditEntry] = deque(maxlen=capacity)
        self._of_people: deque[AuditEntry] = deque(maxlen=capacity)

    def add(self, entry: AuditEntry) -> None:
        """Append an entry."""
        (self._of_breakers if entry.author == BREAKER else self._of_people).append(entry)

    def entries(self, key: str | None = None) -> list[AuditEntry]:
        """All that are kept, newest first; of one signature or tenant if named."""
        found = [entry for ring in (self._of_people, self._of_breakers) for entry in ring if key in (None, entry.key)]
        return sorted(found, key=lambda entry: entry.at)[::-1]
