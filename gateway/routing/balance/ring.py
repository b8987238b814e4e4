"""Consistent hashing with bounded loads: a key's home among replicas, and the next one where the home has enough.

Owns the circle; knows neither what a key means nor when a replica is up. Each replica stands at many points of a circle
of hashes; a key's home is the first one met from the key's own point on. One that may take no more is passed over, so
its surplus spreads over many others instead of falling on one neighbour (Mirrokni, Thorup, Zadimoghaddam, "Consistent
Hashing with Bounded Loads", 2016). Points hang on the names alone: gateways agree without talking, and when a replica
comes or goes only its own keys move.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b

from gateway.routing.replica import Replica

_POINTS = 64
"""Of each replica: shares of the circle then differ by about an eighth (1/√64)."""
_MOST_STEPS = 512
"""Points looked at for one key; where so many in a row may not take it, the caller takes whoever is least loaded."""


class Ring:
    """The circle of one pool's replicas. `follow` is to be called with the members before `home`."""

    __slots__ = ("_members", "_owners", "_points")

    def __init__(self) -> None:
        self._members: tuple[Replica, ...] = ()
        self._points: list[int] = []
        self._owners: list[Replica] = []

    def follow(self, members: tuple[Replica, ...]) -> None:
        """Take in who came and leave out who went. Free while `members` is the same object."""
        if members is self._members:
            return
        before, now = set(self._members), set(members)
        gone = before - now
        kept = [(point, owner) for point, owner in zip(self._points, self._owners, strict=True) if owner not in gone]
        new = [(point, member) for member in members if member not in before for point in _points_of(member.name)]
        standing = sorted([*kept, *new], key=_point)
        self._points = [point for point, _ in standing]
        self._owners = [owner for _, owner in standing]
        self._members = members

    def home(self, key: int, takes: Callable[[Replica], bool]) -> Replica | None:
        """The first replica from the key's point on that `takes` it; None where none is near."""
        owners = self._owners
        size = len(owners)
        start = bisect_left(self._points, key)
        refused: set[Replica] = set()
        for at in range(start, start + min(size, _MOST_STEPS)):
            owner = owners[at % size]
            if owner in refused:
                continue
            if takes(owner):
                return owner
            refused.add(owner)
        return None


def key_of(text: bytes) -> int:
    """The point of a key on the circle: 64 bits, the same in every process."""
    return int.from_bytes(blake2b(text, digest_size=8).digest())


def bounds(candidates: Sequence[Replica], factor: float, floor: int) -> Callable[[Replica], bool]:
    """Whether a replica is one of the `candidates` and below its bound: it may take one request more.

    The bound is `factor` times the mean of what would run on the candidates then, in proportion to their weights, and
    `floor` at the least. The least loaded candidate is always below its own.
    """
    total = sum([each.in_flight for each in candidates]) + 1
    weights = sum([each.weight for each in candidates])
    share = factor * total / weights
    able = set(candidates)

    def takes(replica: Replica) -> bool:
        return replica in able and replica.in_flight < max(floor, math.ceil(share * replica.weight))

    return takes


def _points_of(name: str) -> list[int]:
    digests = [blake2b(b"%b#%d" % (name.encode(), at), digest_size=64).digest() for at in range(_POINTS // 8)]
    return [int.from_bytes(digest[at : at + 8]) for digest in digests for at in range(0, 64, 8)]


def _point(standing: tuple[int, Replica]) -> int:
    return standing[0]
