"""A pool: the replicas that serve one role, and the pick of one among them.

Knows neither rules nor requests. What happens when nothing can be picked is said here and acted on by the router.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.routing.replica import Replica


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer 503 while no replica is available; the client is told to come back after `retry_after_s`."""

    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class Spill:
    """Send the requests to another pool while no replica is available."""

    pool: str


@dataclass(slots=True, eq=False)
class Pool:
    """Replicas of one role, with the hook time that one of their steps may take (`step_budget_us`, None: any)."""

    name: str
    replicas: tuple[Replica, ...]
    step_budget_us: float | None = None
    when_unavailable: Reject | Spill = field(default_factory=Reject)
    _next: int = field(default=0, init=False, repr=False)

    def is_available(self) -> bool:
        """Whether any replica may be picked now."""
        for replica in self.replicas:  # noqa: SIM110 (half the time of any(), and on every request's way)
            if replica.available:
                return True
        return False

    def pick(self, excluded: Collection[Replica] = ()) -> Replica | None:
        """The available replica with the fewest exchanges in flight, or None; equals take turns.

        `excluded` holds the replicas that were tried for this request already. The caller counts `in_flight`.
        """
        replicas = self.replicas
        size = len(replicas)
        start = self._next
        best: Replica | None = None
        best_at = 0
        for offset in range(size):
            at = (start + offset) % size
            replica = replicas[at]
            if not replica.available or (best is not None and replica.in_flight >= best.in_flight):
                continue
            if replica in excluded:
                continue
            best, best_at = replica, at
            if replica.in_flight == 0:
                break
        if best is not None:
            self._next = best_at + 1
        return best
