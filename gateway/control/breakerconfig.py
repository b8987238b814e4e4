"""The configuration of trust: when signatures, tenants and replicas are barred, and what a pool does about it.

Each model stands for a policy of gateway/breaker, whose defaults and reasons are there.
"""

from typing import Annotated, Literal

from pydantic import Field

from gateway.breaker.policy import (
    Aborts,
    BackOff,
    BreakerPolicy,
    Crash,
    Escalation,
    OverBudget,
    Probing,
)
from gateway.breaker.replicapolicy import ReplicaPolicy
from gateway.control.part import Count, Factor, Name, Part, Seconds
from gateway.routing.admission import AdmissionPolicy

DEFAULT_QUARANTINE = "quarantine"

_BREAKER = BreakerPolicy()
_REPLICA = ReplicaPolicy()
_ADMISSION = AdmissionPolicy()


class OverBudgetConfig(Part):
    """So many steps over the pool's step budget within a window."""

    steps: Count = _BREAKER.over_budget.steps
    window_s: Seconds = _BREAKER.over_budget.window_s


class AbortsConfig(Part):
    """So many requests that the engine's own watchdog named within a window."""

    count: Count = _BREAKER.aborts.count
    window_s: Seconds = _BREAKER.aborts.window_s


class CrashConfig(Part):
    """So many replicas that died within seconds of receiving it."""

    within_s: Seconds = _BREAKER.crash.within_s
    replicas: Count = _BREAKER.crash.replicas
    window_s: Seconds = _BREAKER.crash.window_s


class TenantBreakerConfig(Part):
    """So many different signatures of one tenant that trip within a window bar the tenant."""

    signatures: Count = _BREAKER.escalation.signatures
    window_s: Seconds = _BREAKER.escalation.window_s


class BackOffConfig(Part):
    """How long a breaker stays open: `first_s`, `factor` times longer with each further trip, `max_s` at most."""

    first_s: Seconds = _BREAKER.back_off.first_s
    factor: Factor = _BREAKER.back_off.factor
    max_s: Seconds = _BREAKER.back_off.max_s
    forgive_s: Seconds = _BREAKER.back_off.forgive_s


class ProbesConfig(Part):
    """The single requests that find out whether a signature may come back: how many good ones, how far apart."""

    close_after: Count = _BREAKER.probing.close_after
    first_s: Seconds = _BREAKER.probing.first_s
    factor: Factor = _BREAKER.probing.factor
    max_s: Seconds = _BREAKER.probing.max_s


class BreakerConfig(Part):
    """When a cost signature, or a tenant, is quarantined.

    quarantine_pool: where its requests go; by default the pool named `quarantine`, if there is one. Without one they
                     are refused.
    """

    quarantine_pool: Name | None = None
    over_budget: OverBudgetConfig = OverBudgetConfig()
    aborts: AbortsConfig = AbortsConfig()
    crash: CrashConfig = CrashConfig()
    tenant: TenantBreakerConfig = TenantBreakerConfig()
    back_off: BackOffConfig = BackOffConfig()
    probes: ProbesConfig = ProbesConfig()

    def policy(self, quarantine_pool: str | None) -> BreakerPolicy:
        """The policy; `quarantine_pool` is the name of a pool that exists."""
        return BreakerPolicy(
            quarantine_pool=quarantine_pool,
            over_budget=OverBudget(**self.over_budget.model_dump()),
            aborts=Aborts(**self.aborts.model_dump()),
            crash=Crash(**self.crash.model_dump()),
            escalation=Escalation(**self.tenant.model_dump()),
            back_off=BackOff(**self.back_off.model_dump()),
            probing=Probing(**self.probes.model_dump()),
        )


class PoolBreakerConfig(Part):
    """What a pool does with a quarantined signature.

    on_open: new requests of it go to the quarantine pool, or are refused with 429.
    on_trip: one that runs is aborted and, if its client has got nothing yet, run again in quarantine (`rerun`); or
             aborted and ended with an error (`end`); or left alone (`let_finish`).
    """

    on_open: Literal["quarantine", "refuse"] = "quarantine"
    on_trip: Literal["rerun", "end", "let_finish"] = "rerun"


class AdmissionConfig(Part):
    """What one replica of a pool may run at once, and who may wait for room; see docs/breaker.md.

    queue:          requests that may wait; 0: none does.
    max_wait_s:     the longest wait.
    max_in_flight:  requests on one replica, 0: any.
    max_structured: those with a grammar among them, 0: any.
    """

    queue: Annotated[int, Field(ge=0)] = _ADMISSION.queue
    max_wait_s: Seconds = _ADMISSION.max_wait_s
    max_in_flight: Annotated[int, Field(ge=0)] = 0
    max_structured: Annotated[int, Field(ge=0)] = 0


class EjectionConfig(Part):
    """When a replica of a pool is not trusted for a while; see `ReplicaPolicy`. 0 turns a sign off."""

    consecutive_faults: Annotated[int, Field(ge=0)] = _REPLICA.consecutive_faults
    error_rate: Annotated[float, Field(ge=0, le=1)] = _REPLICA.error_rate
    min_requests: Count = _REPLICA.min_requests
    window_s: Seconds = _REPLICA.window_s
    silence_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _REPLICA.silence_s
    max_ejected_percent: Annotated[float, Field(ge=0, le=100)] = _REPLICA.max_ejected_percent
    ejection_s: Seconds = _REPLICA.ejection_s
    max_ejection_s: Seconds = _REPLICA.max_ejection_s

    def policy(self) -> ReplicaPolicy:
        """The policy."""
        return ReplicaPolicy(**self.model_dump())
