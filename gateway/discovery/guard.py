"""Whether a set that was found is to be believed: much of a pool does not vanish at once, unless somebody meant it.

Pure: the clock is passed in.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Doubt:
    """It is not believed yet. `again_in_s`: it is if it still holds then. `why`: for people."""

    again_in_s: float
    why: str


class Guard:
    """Lets no more than a share of the known members go at once; what goes beyond must last."""

    def __init__(self, max_removed_percent: float, settle_s: float, clock: Callable[[], float]) -> None:
        """`settle_s`: how long a greater loss must be found before it is believed."""
        self._most = max_removed_percent / 100
        self._settle_s = settle_s
        self._clock = clock
        self._known: frozenset[str] = frozenset()
        self._doubted_since_s: float | None = None

    def judge(self, found: Set[str]) -> Doubt | None:
        """None: it is believed, and known from now on."""
        gone = self._known - found
        if not gone or len(gone) <= self._most * len(self._known):
            self._believe(found)
            return None
        now_s = self._clock()
        if self._doubted_since_s is None:
            self._doubted_since_s = now_s
        left_s = self._doubted_since_s + self._settle_s - now_s
        if left_s <= 0:
            self._believe(found)
            return None
        share = f"{len(gone)} of {len(self._known)} members are gone, more than {self._most:.0%} at once"
        return Doubt(left_s, f"{share}: they are kept unless that is still so in {left_s:.0f} s")

    def _believe(self, found: Set[str]) -> None:
        self._known = frozenset(found)
        self._doubted_since_s = None
