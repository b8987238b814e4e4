"""What holds for the requests that a rule has sent to a pool: retries, a hedge, a deadline."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.retry.budget import Budget
from gateway.retry.deadline import DeadlineHeader
from gateway.retry.hedging import Hedging
from gateway.retry.policy import RetryPolicy


@dataclass(frozen=True, slots=True)
class Plan:
    """One rule and pool.

    budget:     what the retries and hedges take from; several plans may share one.
    hedging:    None: no second replica is asked.
    deadline_s: how long a request may take, from its head to its last byte; None: as long as it takes.
    """

    retry: RetryPolicy
    budget: Budget
    hedging: Hedging | None = None
    deadline_s: float | None = None


class Plans:
    """The plans of one configuration, each made when it is first asked for; budgets are kept as long as this is.

    make:            makes the plan of a rule and a pool, by their names.
    deadline_header: where clients say how long they will wait; None: nowhere.
    has_deadlines, has_hedges: whether any plan can have one, so that nobody looks for what is not there.
    """

    def __init__(
        self,
        make: Callable[[str, str], Plan],
        deadline_header: DeadlineHeader | None = None,
        *,
        has_deadlines: bool = False,
        has_hedges: bool = False,
    ) -> None:
        self._make = make
        self._plans: dict[tuple[str, str], Plan] = {}
        self.deadline_header = deadline_header
        self.has_deadlines = has_deadlines or deadline_header is not None
        self.has_hedges = has_hedges

    def of(self, rule: str, pool: str) -> Plan:
        """The plan for what a rule has sent to a pool."""
        plan = self._plans.get((rule, pool))
        if plan is None:
            plan = self._plans[rule, pool] = self._make(rule, pool)
        return plan
