"""Why a breaker opened: the cause, what was seen, and the limit that it was over."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.hookcost.observation import Origin


class Cause(StrEnum):
    """What kind of evidence opened a breaker."""

    over_budget = "over_budget"
    """Steps over the pool's step budget, several within a window."""
    hard_limit = "hard_limit"
    """One step over the pool's hard limit."""
    compile = "compile"
    """The grammar took longer to compile than the pool allows."""
    aborts = "aborts"
    """The engine's own watchdog named it, several times within a window."""
    slope = "slope"
    """Its cost per token rises with its length."""
    crash = "crash"
    """Replicas died within seconds of receiving it."""
    tenant = "tenant"
    """Of a tenant: many of its signatures tripped."""


@dataclass(frozen=True, slots=True)
class Trip:
    """One opening of a breaker.

    observed, limit: in `unit`: `us` of one step, `ms` of compiling, or a number of `aborts`, `replicas`, `signatures`.
    count, window_s: how many made it, within which time; one at once: 1 and 0.
    hook:            the kind of hook that took most, as the engine names it.
    at:              wall clock, seconds.
    tenant, pool, replica, request_id: of the last request that added to it.
    budget_us, hard_limit_us, compile_limit_ms: the pool's, against which probes are judged.
    """

    cause: Cause
    observed: float
    limit: float
    unit: str
    at: float
    count: int = 1
    window_s: float = 0.0
    hook: str | None = None
    tenant: str = ""
    pool: str = ""
    replica: str = ""
    request_id: str = ""
    budget_us: float | None = None
    hard_limit_us: float | None = None
    compile_limit_ms: float | None = None


def trip_by(
    origin: Origin,
    at: float,
    cause: Cause,
    observed: float,
    limit: float,
    *,
    unit: str = "us",
    count: int = 1,
    window_s: float = 0.0,
    hook: str | None = None,
) -> Trip:
    """The trip that the request of `origin` brought about at `at` (wall clock)."""
    return Trip(
        cause,
        observed,
        limit,
        unit,
        at,
        count,
        window_s,
        hook,
        origin.tenant,
        origin.pool,
        origin.replica,
        origin.request_id,
        origin.budget_us,
        origin.hard_limit_us,
    )
