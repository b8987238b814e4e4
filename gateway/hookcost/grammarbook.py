"""The grammars that are used most, each kept as the least request that has an engine compile it.

Counts within bounds (the space-saving algorithm: Metwally, Agrawal and El Abbadi, 2005): a grammar that is new takes
the place of the least used, and its count as what may be counted too much. What was used long ago fades. Kept is only
what is used again, within a bound on all bytes. Held in memory alone, and written nowhere. Pure; O(log n) for each use.
"""

import heapq
from dataclasses import dataclass, field
from typing import Final

_COUNTED: Final = 4
"""So many times as many grammars are counted as are wanted: those at the end of the list are told apart, too."""
_FADES_AFTER: Final = 256
"""Uses, for each grammar that is counted, after which all counts are halved."""
_SIGNATURES: Final = 8
_FIRST_KEPT: Final = 2

Key = tuple[str, str]
"""The path that a grammar is asked for at, since engines spell it differently for each, and its grammar key."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A grammar as a request: `body` for `path`. signatures: its own, and those of requests that asked for it."""

    key: Key
    path: str
    body: bytes
    signatures: frozenset[str]


@dataclass(slots=True)
class _Counted:
    """count: uses, of which `beyond` may be another's whose place it has taken."""

    count: int
    beyond: int
    signatures: set[str] = field(default_factory=set)
    body: bytes = b""

    @property
    def uses(self) -> int:
        return self.count - self.beyond


class GrammarBook:
    """The grammars of one pool. Belongs to one event loop."""

    __slots__ = ("_bytes", "_counted", "_grammars", "_heap", "_keep_bytes", "_most_bytes", "_uses")

    def __init__(self, grammars: int, keep_bytes: int, most_bytes: int) -> None:
        """grammars: how many are wanted. keep_bytes: for all bodies together; most_bytes: for one."""
        self._counted: dict[Key, _Counted] = {}
        self._heap: list[tuple[int, Key]] = []
        """The least used first, by a count that may be too small."""
        self._bytes = 0
        self._uses = 0
        self._grammars, self._keep_bytes, self._most_bytes = grammars, keep_bytes, most_bytes

    def bound(self, grammars: int, keep_bytes: int, most_bytes: int) -> None:
        """Keep within other bounds from now on."""
        self._grammars, self._keep_bytes, self._most_bytes = grammars, keep_bytes, most_bytes
        for each in self._counted.values():
            if len(each.body) > most_bytes:
                self._drop_body(each)
        self._make_room(0, {key: each.uses for key, each in self._counted.items()})
        while len(self._counted) > grammars * _COUNTED:
            self._take_least()

    def used(self, key: Key, signature: str) -> bool:
        """A request asked for a grammar. True: it is used so often that its body is wanted, for `keep`."""
        counted = self._counted.get(key)
        if counted is None:
            counted = self._admit(key)
        counted.count += 1
        if signature not in counted.signatures and len(counted.signatures) < _SIGNATURES:
            counted.signatures.add(signature)
        self._uses += 1
        if self._uses >= _FADES_AFTER * self._grammars * _COUNTED:
            self._fade()
        uses = counted.uses
        # Asked for at 2, 4, 8 … uses, so that what can't be kept is not looked at each time.
        return not counted.body and uses >= _FIRST_KEPT and not uses & (uses - 1)

    def may_keep(self, body: bytes) -> bool:
        """Whether a request is small enough."""
        return len(body) <= min(self._most_bytes, self._keep_bytes)

    def keep(self, key: Key, body: bytes, signature: str) -> None:
        """Keep a grammar as this request, whose own signature that is: where there is room for it, or it is used more
        than others that are kept."""
        counted = self._counted.get(key)
        if counted is None or not self.may_keep(body):
            return
        uses = counted.uses
        lesser = {other: each.uses for other, each in self._counted.items() if each.body and each.uses < uses}
        if self._make_room(len(body), lesser):
            counted.body = body
            counted.signatures.add(signature)
            self._bytes += len(body)

    def drop(self, key: Key) -> None:
        """Forget a grammar, which no engine takes."""
        counted = self._counted.pop(key, None)
        if counted is not None:
            self._drop_body(counted)
            self._arrange()

    def top(self) -> list[Kept]:
        """Those that are used most, the most used first."""
        kept = [(key, each) for key, each in self._counted.items() if each.body]
        kept.sort(key=lambda item: -item[1].uses)
        return [Kept(key, key[0], each.body, frozenset(each.signatures)) for key, each in kept[: self._grammars]]

    @property
    def kept_bytes(self) -> int:
        """The bytes of all bodies."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._counted)

    def __contains__(self, key: Key) -> bool:
        """Whether a grammar is counted."""
        return key in self._counted

    # --- inside

    def _admit(self, key: Key) -> _Counted:
        beyond = self._take_least() if len(self._counted) >= self._grammars * _COUNTED else 0
        counted = self._counted[key] = _Counted(beyond, beyond)
        heapq.heappush(self._heap, (beyond, key))
        return counted

    def _take_least(self) -> int:
        """Forget the least used; its count."""
        heap = self._heap
        while True:
            count, key = heap[0]
            counted = self._counted[key]
            if counted.count != count:  # it was used since
                heapq.heapreplace(heap, (counted.count, key))
                continue
            heapq.heappop(heap)
            del self._counted[key]
            self._drop_body(counted)
            return count

    def _make_room(self, size: int, lesser: dict[Key, int]) -> bool:
        """Whether so many bytes more fit, once the least used of `lesser` are without their bodies."""
        spare = [self._counted[key] for key in sorted(lesser, key=lambda key: -lesser[key]) if self._counted[key].body]
        if self._bytes + size - sum([len(each.body) for each in spare]) > self._keep_bytes:
            return False
        while self._bytes + size > self._keep_bytes:
            self._drop_body(spare.pop())
        return True

    def _drop_body(self, counted: _Counted) -> None:
        self._bytes -= len(counted.body)
        counted.body = b""

    def _fade(self) -> None:
        self._uses = 0
        for each in self._counted.values():
            each.count //= 2
            each.beyond //= 2
        self._arrange()

    def _arrange(self) -> None:
        self._heap = [(each.count, key) for key, each in self._counted.items()]
        heapq.heapify(self._heap)
