"""All that one gateway knows of the shared state, and who wants to hear of it. No I/O; outlives every connection."""

from collections.abc import Callable, Mapping
from itertools import count

from gateway.state.delivery import Delivery
from gateway.state.ledger import Ledger
from gateway.state.store import DEFAULT_TTL_S, Added, Decided, Watcher
from gateway.state.tally import Tally


class Knowledge:
    """The ledgers and tallies by kind; a kind exists from its first mention on."""

    def __init__(self, *, origin: str, clock: Callable[[], float], ttls_s: Mapping[str, float], capacity: int) -> None:
        """`origin`: name that no other gateway has, without blanks. The rest as for the store."""
        self.origin = origin
        self.ledgers: dict[str, Ledger] = {}
        self.tallies: dict[str, Tally] = {}
        self._clock = clock
        self._ttls_s = dict(ttls_s)
        self._capacity = capacity
        self._numbers = count(1)
        self._watchers: dict[str, list[Watcher]] = {}
        self._added_watchers: dict[str, list[Added]] = {}
        self._delivery = Delivery()
        self._store_ms = 0.0
        self._store_ms_at = clock()
        # So that what they know is asked for from the start.
        for kind in self._ttls_s:
            self.ledger(kind)

    def ledger(self, kind: str) -> Ledger:
        """The records of a kind."""
        ledger = self.ledgers.get(kind)
        if ledger is None:

            def report(key: str, version: int, value: bytes) -> None:
                self._delivery.tell(self._watchers.get(kind, ()), key, version, value)

            ledger = self.ledgers[kind] = Ledger(report, self._settle, self.new_token, self.store_ms, self._capacity)
        return ledger

    def tally(self, kind: str) -> Tally:
        """The counters of a kind."""
        tally = self.tallies.get(kind)
        if tally is None:

            def report(key: str, amounts: Mapping[str, float]) -> None:
                self._delivery.tell(self._added_watchers.get(kind, ()), key, amounts)

            tally = self.tallies[kind] = Tally(report, self._clock, self.ttl_s(kind), self._capacity)
        return tally

    def ttl_s(self, kind: str) -> float:
        """How long records and counters of a kind outlive their last change."""
        return self._ttls_s.get(kind, DEFAULT_TTL_S)

    def watch(self, kind: str, watcher: Watcher) -> None:
        """Tell `watcher` what is known, and each change from now on."""
        ledger = self.ledger(kind)
        self._watchers.setdefault(kind, []).append(watcher)
        for key, record in ledger.records().items():
            self._delivery.tell([watcher], key, record.version, record.value)

    def watch_added(self, kind: str, watcher: Added) -> None:
        """Tell `watcher` what others add from now on."""
        self.tally(kind)
        self._added_watchers.setdefault(kind, []).append(watcher)

    def new_token(self) -> str:
        """A name for a change, or for the holder of a lease, that was never given before."""
        return f"{self.origin}.{next(self._numbers)}"

    def store_ms(self) -> float:
        """The store's wall clock, as read last and run on by our own clock; 0 where it was never read."""
        return self._store_ms + (self._clock() - self._store_ms_at) * 1000 if self._store_ms else 0.0

    def set_store_ms(self, now_ms: float) -> None:
        """The store's wall clock has just been read."""
        self._store_ms, self._store_ms_at = now_ms, self._clock()

    @property
    def pending(self) -> int:
        """Records with a change that the store hasn't taken."""
        return sum(ledger.pending for ledger in self.ledgers.values())

    @property
    def dropped(self) -> int:
        """Changes and additions given up for want of room."""
        ledgers, tallies = self.ledgers.values(), self.tallies.values()
        return sum(ledger.dropped for ledger in ledgers) + sum(tally.dropped for tally in tallies)

    def _settle(self, decided: Decided, applied: bool) -> None:
        self._delivery.tell([decided], applied)
