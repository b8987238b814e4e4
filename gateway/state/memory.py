"""The store of a single gateway: everything stays in the process and is lost with it."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TypeVar

from gateway.state.delivery import Delivery
from gateway.state.store import DEFAULT_TTL_S, Added, Decided, Record, StoreStatus, Watcher

_SWEEP_EVERY = 256
"""At least so many changes between two looks for what has expired."""


@dataclass(slots=True)
class _Expiring:
    expires_at: float


@dataclass(slots=True)
class _Kept(_Expiring):
    record: Record


@dataclass(slots=True)
class _Counted(_Expiring):
    amounts: dict[str, float]


_Key = TypeVar("_Key")
_Entry = TypeVar("_Entry", bound=_Expiring)


class MemoryStore:
    """`Store` for one process. Keeps the promises of the shared one, so that nobody need know which it is."""

    def __init__(self, *, clock: Callable[[], float], ttls_s: Mapping[str, float] | None = None) -> None:
        """`clock` gives seconds; `ttls_s`: by kind, how long a record or counter outlives its last change."""
        self._clock = clock
        self._ttls_s = dict(ttls_s or {})
        self._since = clock()
        self._records: dict[str, dict[str, _Kept]] = {}
        self._counters: dict[tuple[str, str], _Counted] = {}
        self._leases: dict[str, _Expiring] = {}
        self._watchers: dict[str, list[Watcher]] = {}
        self._delivery = Delivery()
        self._changes_to_sweep = _SWEEP_EVERY

    async def start(self) -> None:
        """Nothing to wait for."""

    async def close(self) -> None:
        """Nothing to publish."""

    def force(self, kind: str, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Put `value` on top; the new version."""
        version = self._version(kind, key) + 1
        self._put(kind, key, Record(version, value), ttl_s)
        return version

    def advance(
        self,
        kind: str,
        key: str,
        expected_version: int,
        value: bytes,
        *,
        ttl_s: float | None = None,
        decided: Decided | None = None,
    ) -> None:
        """Replace the value if the version is `expected_version`; decided before it returns."""
        applied = self._version(kind, key) == expected_version
        if applied:
            self._put(kind, key, Record(expected_version + 1, value), ttl_s)
        if decided is not None:
            self._delivery.tell([decided], applied)

    def record(self, kind: str, key: str) -> Record | None:
        """What is kept of a key."""
        kept = self._records.get(kind, {}).get(key)
        return kept.record if kept is not None and self._clock() < kept.expires_at else None

    def records(self, kind: str) -> dict[str, Record]:
        """All that is kept of a kind, by key."""
        now = self._clock()
        return {key: kept.record for key, kept in self._records.get(kind, {}).items() if now < kept.expires_at}

    def watch(self, kind: str, watcher: Watcher) -> None:
        """Tell `watcher` what exists, and each change from now on."""
        self._watchers.setdefault(kind, []).append(watcher)
        for key, record in self.records(kind).items():
            self._delivery.tell([watcher], key, record.version, record.value)

    async def lease(self, key: str, ttl_s: float) -> bool:
        """Whether `key` was free; it is the caller's for `ttl_s` seconds."""
        now = self._clock()
        held = self._leases.get(key)
        if held is not None and now < held.expires_at:
            return False
        self._leases[key] = _Expiring(now + ttl_s)
        self._sweep_sometimes(now)
        return True

    def release(self, key: str) -> None:
        """Give a lease back."""
        self._leases.pop(key, None)

    def add(self, kind: str, key: str, amounts: Mapping[str, float]) -> None:
        """Add to the counters of a key."""
        now = self._clock()
        counted = self._counters.get((kind, key))
        if counted is None or now >= counted.expires_at:
            counted = self._counters[kind, key] = _Counted(now, {})
        counted.expires_at = now + self._ttl_s(kind, None)
        for name, amount in amounts.items():
            counted.amounts[name] = counted.amounts.get(name, 0.0) + amount
        self._sweep_sometimes(now)

    def totals(self, kind: str, key: str) -> dict[str, float]:
        """The counters of a key."""
        counted = self._counters.get((kind, key))
        return dict(counted.amounts) if counted is not None and self._clock() < counted.expires_at else {}

    def watch_added(self, kind: str, watcher: Added) -> None:
        """There is nobody else who could add."""

    def status(self) -> StoreStatus:
        """Always well."""
        return StoreStatus("memory", "", True, self._since, 0, 0, None, None)

    def _ttl_s(self, kind: str, ttl_s: float | None) -> float:
        return self._ttls_s.get(kind, DEFAULT_TTL_S) if ttl_s is None else ttl_s

    def _version(self, kind: str, key: str) -> int:
        record = self.record(kind, key)
        return record.version if record is not None else 0

    def _put(self, kind: str, key: str, record: Record, ttl_s: float | None) -> None:
        now = self._clock()
        self._records.setdefault(kind, {})[key] = _Kept(now + self._ttl_s(kind, ttl_s), record)
        self._sweep_sometimes(now)
        self._delivery.tell(self._watchers.get(kind, ()), key, record.version, record.value)

    def _sweep_sometimes(self, now: float) -> None:
        self._changes_to_sweep -= 1
        if self._changes_to_sweep > 0:
            return
        for kept in self._records.values():
            _drop_expired(kept, now)
        _drop_expired(self._counters, now)
        _drop_expired(self._leases, now)
        # As many changes to the next sweep as there are entries: its cost stays in proportion to the changes.
        left = len(self._leases) + len(self._counters) + sum(map(len, self._records.values()))
        self._changes_to_sweep = max(left, _SWEEP_EVERY)


def _drop_expired(entries: MutableMapping[_Key, _Entry], now: float) -> None:
    for key in [key for key, entry in entries.items() if now >= entry.expires_at]:
        del entries[key]
