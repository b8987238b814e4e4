"""Likes to their like: requests with one key to one replica, as long as that has not more than its share.

Owns how a key becomes a score. What the key is: the grammar (its compiled form lies in one engine's cache then), or the
session (so does its conversation).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.balance.ask import Ask
from gateway.routing.balance.ring import Ring, bounds, key_of
from gateway.routing.balance.session import session_of_header, session_of_user
from gateway.routing.replica import Replica

BOUND = 1.25
FLOOR = 8


@dataclass(frozen=True, slots=True)
class GrammarAffinity:
    """One grammar to one replica. `bound`, `floor`: see `ring.bounds`."""

    bound: float = BOUND
    floor: int = FLOOR

    def build(self) -> "Affinity":
        """By the key under which an engine caches the grammar."""
        return Affinity(_grammar, self.bound, self.floor)


@dataclass(frozen=True, slots=True)
class SessionAffinity:
    """One session to one replica: by a request `header`, or by the body's `user` where none is named."""

    header: str | None = None
    bound: float = BOUND
    floor: int = FLOOR

    def build(self) -> "Affinity":
        """By what names the session."""
        name = session_of_user if self.header is None else session_of_header(self.header)
        return Affinity(name, self.bound, self.floor)


class Affinity:
    """Scores a key's home 1.0 and everyone else 0.0; a request without a key likes all the same."""

    __slots__ = ("_bound", "_floor", "_name", "_ring")

    def __init__(self, name: Callable[[Ask], bytes], bound: float, floor: int) -> None:
        """`name` gives the key of a request, empty where it has none."""
        self._name = name
        self._bound = bound
        self._floor = floor
        self._ring = Ring()

    def score(self, ask: Ask, members: tuple[Replica, ...], candidates: Sequence[Replica], /) -> list[float]:
        """See `Scorer`."""
        name = self._name(ask)
        if not name:
            return [0.0] * len(candidates)
        self._ring.follow(members)
        home = self._ring.home(key_of(name), bounds(candidates, self._bound, self._floor))
        return [1.0 if each is home else 0.0 for each in candidates]


def _grammar(ask: Ask) -> bytes:
    return ask.classification.grammar_key.encode()
