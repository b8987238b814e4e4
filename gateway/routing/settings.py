"""What a configuration says of a pool as such: its limits, its balancing and what its engines can do.

Data alone. A reload compares two of them, and gives the new one to the pool.
"""

from dataclasses import dataclass

from gateway.routing.balance.balancer import Plan
from gateway.routing.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Reject:
    """Answer 503 while no replica is available; the client is told to come back after `retry_after_s`."""

    retry_after_s: int = 1


@dataclass(frozen=True, slots=True)
class Spill:
    """Send the requests to another pool: while no replica is available, or as far as that one has room to spare."""

    pool: str


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """See `Pool`; `balance` None: the least loaded replica. `when_full` None: what finds no room waits for some."""

    step_budget_us: float | None = None
    when_unavailable: Reject | Spill = Reject()
    when_full: Spill | None = None
    max_in_flight: int = 0
    max_structured: int = 0
    balance: Plan | None = None
    capabilities: Capabilities | None = None
    backend: str | None = None
    spells_schemas: bool = False
