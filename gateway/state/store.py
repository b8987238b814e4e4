"""The interface of shared memory: versioned records, leases and counters. Owns its words and their promises.

A *record* is the last value of one key of one kind, with a version that grows with each change. Two ways to change it:
`force` puts a value on top whatever stood there (a trip), `advance` only where nothing has changed since (half-open,
close). A force wins over an advance that did not know of it, always.

All methods but `start`, `close` and `lease` return at once and never raise for reasons of the network: they act on what
this gateway knows, and the rest is told to the watchers. All of them belong to one event loop. Versions that a watcher
is told of one key only grow, until the record has expired (its time to live has passed without a change).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

DEFAULT_TTL_S = 30 * 24 * 3600.0
"""How long a record or counter outlives its last change where its kind names no time: nothing is kept for ever."""

Watcher = Callable[[str, int, bytes], None]
"""Called with key, version, value at each change of a kind, own changes included, each once."""

Added = Callable[[str, Mapping[str, float]], None]
"""Called with key and amounts: what other gateways have added to its counters since the last call."""

Decided = Callable[[bool], None]
"""Called once with the outcome of an `advance`: True if it was applied, False if another change came first."""


@dataclass(frozen=True, slots=True)
class Record:
    """The last value of a key, as this gateway knows it."""

    version: int
    value: bytes


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How the store is.

    kind:       `memory`, `redis` or `supervisor`.
    address:    where it is, without secrets; "" for memory.
    connected:  changes reach the other gateways.
    since:      clock reading of the last change of `connected`, or of the start.
    pending:    keys with changes that are not published yet.
    dropped:    changes and counters given up for want of room since the start.
    last_error: why the last thing that failed did, kept while the trouble lasts; None when all is well.
    latency_ms: round trip of the last exchange; None where there was none.
    """

    kind: str
    address: str
    connected: bool
    since: float
    pending: int
    dropped: int
    last_error: str | None
    latency_ms: float | None


class Store(Protocol):
    """What gateways remember together. See the module for what holds of all methods."""

    async def start(self) -> None:
        """Take up work; waits a moment, but not longer, for what the other gateways know."""

    async def close(self) -> None:
        """Publish what can still be published within a moment, and stop. What is known stays readable."""

    def force(self, kind: str, key: str, value: bytes, *, ttl_s: float | None = None) -> int:
        """Put `value` on top of whatever stands there; the new version.

        It is applied here at once. When other changes came before it, it is reported again with the version that it
        got. `ttl_s`: seconds after which the record is forgotten if it doesn't change, `math.inf` for never; None: as
        its kind says.
        """

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
        """Replace the value if the version is still `expected_version` (0: there is no record); else change nothing.

        Watchers are told when it is applied; `decided` hears either outcome. While other gateways can't be asked it
        waits, one for each key: a later advance or force of the same key takes its place, and it hears False.
        """

    def record(self, kind: str, key: str) -> Record | None:
        """What is known of a key; None if nothing is."""

    def records(self, kind: str) -> dict[str, Record]:
        """All that is known of a kind, by key."""

    def watch(self, kind: str, watcher: Watcher) -> None:
        """Have `watcher` called with all that exists of `kind`, now, and at each change, before the changing call
        returns. What it raises is logged."""

    async def lease(self, key: str, ttl_s: float) -> bool:
        """Whether the caller alone, of all gateways, has `key` from now on for `ttl_s` seconds at most.

        False if somebody has it, and if the other gateways can't be asked within a tenth of a second.
        """

    def release(self, key: str) -> None:
        """Give a lease back before its time. Does nothing to the lease of another gateway."""

    def add(self, kind: str, key: str, amounts: Mapping[str, float]) -> None:
        """Add to the counters of a key, by name. Shared with a delay; may be lost when the shared store loses data."""

    def totals(self, kind: str, key: str) -> dict[str, float]:
        """The counters of a key, all gateways together, as known here; empty if there are none."""

    def watch_added(self, kind: str, watcher: Added) -> None:
        """Have `watcher` called with what other gateways add to the counters of `kind`, and at the start with what they
        have added before. What it raises is logged."""

    def status(self) -> StoreStatus:
        """How the store is."""
