"""The three stages of a choice, as the pipeline asks them: filters leave some out, scorers say how good each of the
rest is, a pick takes one.
"""

from collections.abc import Sequence
from typing import Protocol

from gateway.routing.balance.ask import Ask
from gateway.routing.replica import Replica


class Filter(Protocol):
    """Leaves out candidates that should not be taken while others can."""

    def narrow(self, ask: Ask, candidates: Sequence[Replica], /) -> Sequence[Replica]:
        """Some of the candidates; all of them where none would be left."""


class Scorer(Protocol):
    """Says how good each candidate is for a request."""

    def score(self, ask: Ask, members: tuple[Replica, ...], candidates: Sequence[Replica], /) -> list[float]:
        """One number for each candidate, from 0.0 to 1.0, the best."""


class Pick(Protocol):
    """Takes one of the candidates."""

    def sample(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """Those of the candidates that are worth scoring."""

    def pick(self, candidates: Sequence[Replica], scores: Sequence[float]) -> Replica:
        """The replica that takes the request; there is one score for each candidate, at least one."""
