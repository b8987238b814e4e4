"""The configuration of retries, hedges and deadlines: of a pool, and of a rule, which overrides its pool key by key.

Each model stands for a policy of gateway/retry, whose defaults and reasons are there.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints

from gateway.control.part import Factor, Part, Seconds
from gateway.control.validation import HEADER_PATTERN, custom_error
from gateway.retry.backoff import BackOff
from gateway.retry.budget import BudgetPolicy
from gateway.retry.hedging import HedgePolicy
from gateway.retry.policy import USUAL, RetryPolicy
from gateway.retry.reason import Reason

_MOST_ATTEMPTS = 10
_RETRY = RetryPolicy()
_USUAL = [reason for reason in Reason if reason in USUAL]

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OnReason = Literal["connect", "stale", "reset", "timeout", "http_429", "http_500", "http_502", "http_503", "http_504"]

_PERCENTILE = re.compile(r"p[5-9][0-9]")

AnyPart = TypeVar("AnyPart", bound=Part)


def _time_or_percentile(value: object) -> object:
    if isinstance(value, str) and _PERCENTILE.fullmatch(value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 < value < float("inf"):
        return float(value)
    raise custom_error("a number of seconds above 0, or a percentile from p50 to p99")


class RetryBudgetConfig(Part):
    """How many retries there may be in all.

    ratio:     for each answered request of the last ten seconds.
    min_per_s: a second, however few requests there are.
    """

    ratio: _Share = _RETRY.budget.ratio
    min_per_s: _Amount = _RETRY.budget.min_per_s


class RetryBackOffConfig(Part):
    """How long is waited before a retry.

    first_s: before the first one; 0: every retry is at once.
    factor:  each further wait is so many times longer, `max_s` at most.
    jitter:  the share of a wait, from 0 to 1, that is left to chance.
    """

    first_s: _Amount = _RETRY.back_off.first_s
    factor: Factor = _RETRY.back_off.factor
    max_s: Seconds = _RETRY.back_off.max_s
    jitter: _Share = _RETRY.back_off.jitter


class RetryConfig(Part):
    """When a request is tried again; see docs/retries.md.

    attempts:          tries at a request in all; 1: no retry.
    on:                after what; gateway/retry/reason.py lists the words.
    budget, back_off:  how often in all, and how soon.
    max_retry_after_s: what a replica's `Retry-After` counts for at most, in seconds; 0: nothing.
    """

    attempts: Annotated[int, Field(ge=1, le=_MOST_ATTEMPTS)] = _RETRY.attempts
    on: list[_OnReason] = Field(default_factory=lambda: [reason.value for reason in _USUAL])
    budget: RetryBudgetConfig = RetryBudgetConfig()
    back_off: RetryBackOffConfig = RetryBackOffConfig()
    max_retry_after_s: _Amount = _RETRY.max_retry_after_s

    def policy(self) -> RetryPolicy:
        """The policy."""
        return RetryPolicy(
            attempts=self.attempts,
            on=frozenset(map(Reason, self.on)),
            budget=BudgetPolicy(**self.budget.model_dump()),
            back_off=BackOff(**self.back_off.model_dump()),
            max_retry_after_s=self.max_retry_after_s,
        )


class HedgeConfig(Part):
    """A second replica is asked beside the first where no byte of an answer has come; the first answer wins.

    after_s:     seconds after the first, or `p50` to `p99`: as long as so many of the pool's requests in 100 take.
    max_share:   hedges for each answered request; each also takes from the retry budget. 0: there is none.
    max_step_us: requests with a higher predicted hook cost a step are not sent twice.
    """

    after_s: Annotated[float | str, BeforeValidator(_time_or_percentile)] = "p95"
    max_share: _Share = 0.05
    max_step_us: _Amount = 0.0

    def policy(self) -> HedgePolicy:
        """The policy."""
        after_s = self.after_s
        if isinstance(after_s, str):
            return HedgePolicy(None, int(after_s[1:]) / 100, self.max_share, self.max_step_us)
        return HedgePolicy(after_s, max_share=self.max_share, max_step_us=self.max_step_us)


class DeadlinesConfig(Part):
    """Where clients say how long they will wait.

    header: the name of a request header with that time, in milliseconds if the name ends in `-ms`, else in seconds.
            What is left of it is passed on to the replica under the same name. By default there is none.
    """

    header: Annotated[str, StringConstraints(pattern=HEADER_PATTERN)] | None = None


def overridden(part: AnyPart, by: AnyPart | None) -> AnyPart:
    """`part` with the keys that `by` gives."""
    return (
        part if by is None else type(part).model_validate(_joined(part.model_dump(), by.model_dump(exclude_unset=True)))
    )


def _joined(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        both = isinstance(value, dict) and isinstance(values[key], dict)
        values[key] = _joined(values[key], value) if both else value
    return values
