"""The least of an amount, whichever it is: requests, their hook time in a step, the engine's own load."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.routing.balance.ask import Ask
from gateway.routing.balance.stages import Scorer
from gateway.routing.replica import Replica


@dataclass(frozen=True, slots=True)
class Least:
    """Scores in proportion: the candidate with the most gets 0.0, one with nothing 1.0. Its own scorer."""

    amount: Callable[[Replica], float]

    def build(self) -> Scorer:
        """Itself: nothing is remembered."""
        return self

    def score(self, _ask: Ask, _members: tuple[Replica, ...], candidates: Sequence[Replica], /) -> list[float]:
        """See `Scorer`."""
        amounts = [self.amount(each) for each in candidates]
        most = max(amounts)
        if most <= 0.0:
            return [1.0] * len(amounts)
        return [1.0 - amount / most for amount in amounts]


def requests(replica: Replica) -> float:
    """Requests of this gateway, in proportion to the replica's weight."""
    return replica.in_flight / replica.weight


def step_cost(replica: Replica) -> float:
    """Microseconds of hook time a step, predicted and observed, of what runs there, in proportion to its weight."""
    return replica.booked_us / replica.weight


def engine_load(replica: Replica) -> float:
    """Requests at the engine, other clients' and gateways' included, in proportion to its weight.

    Of an engine that does not tell, what this gateway runs there is all that is known.
    """
    return (replica.in_flight + replica.elsewhere) / replica.weight


def cache_usage(replica: Replica) -> float:
    """Share of the engine's KV cache that is in use; a half where it does not tell."""
    return replica.cache_usage if replica.cache_usage >= 0.0 else 0.5
