"""A request that waits for room on a replica of its pool: what it needs, until when, and whom to tell."""

from collections.abc import Callable

from gateway.routing.pool import Pool
from gateway.routing.replica import Replica
from gateway.routing.router import Rejection

_LEAST_CHARGE_US = 1.0


class Ticket:
    """A place in the queue of one pool; identity is the object itself, so that leaving the queue takes no search.

    step_us, structured: what will be booked on the replica, and is owed back to the pool with `release`.
    tenant:        whose request it is; tenants share what is given out, by `step_us`.
    priority:      higher goes first, whoever the tenant.
    excluded:      replicas that were tried for the request already.
    hosts:         names of other pools that may take it as their guest. host: the one that has, set by the queue.
    max_wait_s:    how long it may wait; None: as long as the pool's policy says, which is the most in any case.
    admitted:      called with the replica that the request was booked on. refused: called with the answer to give.
                   Exactly one of them is called, once, unless the ticket is cancelled; never from within `wait`. They
                   may use the pool and its queue.
    number, since_s, until_s: order and time of its coming, and when its wait ends; set by the queue.
    """

    __slots__ = (
        "admitted",
        "excluded",
        "host",
        "hosts",
        "max_wait_s",
        "number",
        "outcome",
        "priority",
        "refused",
        "since_s",
        "step_us",
        "structured",
        "tenant",
        "until_s",
        "waits",
    )

    def __init__(
        self,
        step_us: float,
        structured: bool,
        admitted: Callable[[Replica], None],
        refused: Callable[[Rejection], None],
        *,
        tenant: str = "",
        priority: int = 0,
        excluded: tuple[Replica, ...] = (),
        hosts: tuple[str, ...] = (),
        max_wait_s: float | None = None,
    ) -> None:
        self.step_us = step_us
        self.structured = structured
        self.admitted = admitted
        self.refused = refused
        self.tenant = tenant
        self.priority = priority
        self.excluded = excluded
        self.hosts = hosts
        self.host: Pool | None = None
        self.max_wait_s = max_wait_s
        self.number = 0
        self.since_s = 0.0
        self.until_s = 0.0
        self.waits = False
        self.outcome: Replica | Rejection | None = None
        """Decided, but not told yet."""

    def forget(self) -> None:
        """Let go of the caller: a ticket may be remembered until its deadline, and a request may hold a large body."""
        self.admitted = self.refused = _nobody

    def give_back(self, home: Pool, replica: Replica) -> None:
        """Release the replica that it was booked on, of its own pool, `home`, or of the one whose guest it would be."""
        if self.host is None:
            home.release(replica, self.step_us, self.structured)
        else:
            self.host.release_guest(replica, self.step_us, self.structured)

    @property
    def charge_us(self) -> float:
        """What its tenant pays when it is admitted: its step cost, and a little for requests that have none."""
        return max(self.step_us, _LEAST_CHARGE_US)


def _nobody(_: object) -> None:
    """Whoever waited has been told, or has left."""
