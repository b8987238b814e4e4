"""A link: one connection to where state is shared, as a session uses it. Owns the words of the exchange alone.

A link is used until something fails and then replaced by a new one, so nothing behind it tries twice. Which process
answers, and in what form it is asked, is of those who implement it: redislink.py and socketlink.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.state.ledger import Change
from gateway.state.stored import Stored
from gateway.state.tally import Batch

Totals = dict[str, dict[str, float]]
"""Counters by key and name."""


@dataclass(frozen=True, slots=True)
class Message:
    """A change of a record. `number` counts the changes of its kind; `packed` is the record (see stored.py)."""

    kind: str
    key: str
    number: int
    packed: bytes


class Link(Protocol):
    """Every method raises one of `failures` where the other side is away, slow or unwilling; after the first one the
    link is to be closed, unless `is_refusal`."""

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """What the methods raise."""

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the other side is there and answers, but will not do this now."""

    async def subscribe(self) -> None:
        """Hear messages from now on: all that are published after this returns."""

    async def message(self) -> Message:
        """The next message."""

    async def introduce(self) -> None:
        """Have a server that is new begin its time of granting no leases, if it needs one."""

    async def look(self, kind: str) -> tuple[float, int]:
        """The other side's wall clock in ms, and the number of changes of a kind so far."""

    async def records(self, kind: str, cursor: int) -> tuple[int, list[tuple[str, Stored]]]:
        """A page of the records of a kind, from cursor 0 on, and the cursor of the next one; 0 after the last."""

    async def change(self, kind: str, changes: Sequence[Change]) -> list[tuple[bool, Stored | None]]:
        """Apply changes of different keys; for each whether it was clean (see ledger.py), and the record after it."""

    async def prune(self, kind: str, keys: Sequence[str]) -> None:
        """Remove those of these records whose time is over."""

    async def count(self, kind: str, origin: str, batch: Batch, ttl_s: float) -> Totals:
        """Add a batch, unless `origin` has delivered it before; the totals of its keys."""

    async def changed_since(self, kind: str, at_ms: float, offset: int, limit: int) -> list[tuple[str, float]]:
        """A page of the keys of counters that have changed since a time of `look`'s clock, each with its time, oldest
        first."""

    async def totals(self, kind: str, keys: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """The counters of some keys."""

    async def lease(self, key: str, holder: str, ttl_s: float) -> bool:
        """Whether a lease is the holder's from now on."""

    async def release(self, key: str, holder: str) -> None:
        """Give a lease back, if it is the holder's."""

    async def close(self) -> None:
        """Let go of the connection. Never raises `failures`."""
