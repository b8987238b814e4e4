"""What a pool asks for a choice among its replicas, and what a configuration says of it."""

from collections.abc import Sequence
from typing import Protocol

from gateway.routing.balance.ask import Ask
from gateway.routing.replica import Replica


class Balancer(Protocol):
    """Chooses replicas for one pool. Belongs to one event loop; may remember what it has chosen."""

    def choose(self, ask: Ask, members: tuple[Replica, ...], candidates: Sequence[Replica]) -> Replica:
        """One of the `candidates`, at least one: those of the pool's `members` that can take the request now.

        `members` is another object whenever they have changed.
        """

    def learn(self, ask: Ask, replica: Replica) -> None:
        """The request goes to this replica, chosen here or not."""


class Plan(Protocol):
    """A balancer before it has a pool: two that are equal choose alike, so a pool keeps the one it has."""

    def build(self) -> Balancer:
        """A balancer that remembers nothing yet."""
