"""What holds for the retries of the requests of one pool, or of one rule."""

from dataclasses import dataclass, field

from gateway.retry.backoff import BackOff
from gateway.retry.budget import BudgetPolicy
from gateway.retry.reason import Reason

USUAL = frozenset((Reason.connect, Reason.stale, Reason.reset, Reason.http_429, Reason.http_503))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """attempts: tries at a request in all; 1: no retry.

    on:                after what a request is tried again. What a replica may have worked on is only repeated where
                       doing it twice does no harm: generation, and methods that are idempotent.
    max_retry_after_s: what a replica's `Retry-After` counts for at most; 0: nothing.
    """

    attempts: int = 2
    on: frozenset[Reason] = USUAL
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)
    back_off: BackOff = field(default_factory=BackOff)
    max_retry_after_s: float = 30.0

    def allows(self, reason: Reason, attempts: int, *, harmless: bool) -> bool:
        """Whether there may be another try after `attempts` of them, apart from the budget.

        harmless: doing it twice does no harm.
        """
        return attempts < self.attempts and reason in self.on and (harmless or reason.is_unprocessed)
