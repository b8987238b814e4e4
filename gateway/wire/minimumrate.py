"""The least rate at which a peer must move bytes while it is its turn: whoever is slower holds what others could use.

Looked at once a second from outside, so that it costs nothing for each piece that moves. Pure: knows no sockets.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

Mover = TypeVar("Mover")


class MinimumRate(Generic[Mover]):
    """Watches movers as long as they are named in each check; each spell of `grace_s` seconds is judged by itself."""

    def __init__(self, bytes_per_s: int, grace_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._grace_s = grace_s
        self._spells: dict[Mover, tuple[float, int]] = {}
        """When the spell of each mover began, and how much it had moved by then."""

    def check(self, movers: Iterable[tuple[Mover, int]], now: float) -> list[Mover]:
        """Those that are too slow. `movers`: whose turn it is to move, and how many bytes they have moved in all.

        Whoever is not among them has its peace, and a new spell when it is its turn again.
        """
        slow: list[Mover] = []
        spells: dict[Mover, tuple[float, int]] = {}
        for mover, moved in movers:
            began_at, before = spell = self._spells.get(mover, (now, moved))
            if now - began_at >= self._grace_s:
                if moved - before < self._bytes_per_s * (now - began_at):
                    slow.append(mover)
                    continue
                spell = (now, moved)
            spells[mover] = spell
        self._spells = spells
        return slow
