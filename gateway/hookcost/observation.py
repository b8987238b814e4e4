"""What was observed of one request's hook cost, attributed to its signature: the cost book and breaker work on it.

Owns the words between those who sense (feed) and those who judge (breaker, cost book). Times of events are seconds of
the gateway's monotonic clock at which the record was read, never the engine's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(init=False)
class Origin:
    """Whom an observation is about. Not to be changed.

    request_id:    the gateway's id of the request, the one that it gave to the engine.
    signature:     cost shape of the request.
    tenant:        whose request it is, "" where unknown.
    pool, replica: names of where it ran.
    budget_us:     hook time that one step may take in that pool; None: any.
    hard_limit_us: hook time of one step that trips at once; None: any.
    probe:         it runs in quarantine to find out whether its signature may come back.
    costly:        hook work is predicted for it (`HookCost.costly`); who asks for none is never blamed for any.

    Made for every request that costs something; see `Features`.
    """

    request_id: str
    signature: str
    tenant: str
    pool: str
    replica: str
    budget_us: float | None
    hard_limit_us: float | None
    probe: bool
    costly: bool

    def __init__(
        self,
        request_id: str,
        signature: str,
        tenant: str,
        pool: str,
        replica: str,
        budget_us: float | None = None,
        hard_limit_us: float | None = None,
        probe: bool = False,
        costly: bool = True,
    ) -> None:
        self.request_id = request_id
        self.signature = signature
        self.tenant = tenant
        self.pool = pool
        self.replica = replica
        self.budget_us = budget_us
        self.hard_limit_us = hard_limit_us
        self.probe = probe
        self.costly = costly


@dataclass(frozen=True, slots=True)
class StepObservation:
    """What one request took of one step. `own_us` is its own hook time, all sequences together; `kinds` splits it."""

    origin: Origin
    at_s: float
    own_us: float
    kinds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RollupObservation:
    """Several steps of one request added up, those of its StepObservations among them: for the cost book alone."""

    origin: Origin
    at_s: float
    steps: int
    sum_us: float
    max_us: float
    kinds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CompileObservation:
    """The engine compiled, or failed to compile, the request's grammar. `limit_ms` is the pool's; None: any."""

    origin: Origin
    at_s: float
    compile_ms: float
    error: str | None = None
    limit_ms: float | None = None


class Limit(StrEnum):
    """Which limit of the engine's own watchdog was exceeded."""

    hard = "hard"
    soft = "soft"
    compile = "compile"
    asked = "asked"


@dataclass(frozen=True, slots=True)
class OffenceObservation:
    """The engine's own watchdog named the request. `aborted`: it has ended it already."""

    origin: Origin
    at_s: float
    limit: Limit
    kind: str | None
    own_us: float
    limit_us: float
    aborted: bool
    reason: str
