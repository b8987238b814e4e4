"""A small world around the breaker: clocks that are turned by hand, and observations made from a few words."""

from dataclasses import dataclass, field, replace

from gateway.breaker.ledger import Transition
from gateway.breaker.policy import BreakerPolicy
from gateway.breaker.record import Kind, State
from gateway.breaker.trust import Trust
from gateway.breaker.verdict import Verdict
from gateway.hookcost.cost import FREE, HookCost
from gateway.hookcost.observation import (
    CompileObservation,
    Limit,
    OffenceObservation,
    Origin,
    RollupObservation,
    StepObservation,
)

BUDGET_US, HARD_US, COMPILE_MS = 1000.0, 100_000.0, 500.0
GRAMMAR = HookCost(compile_ms=5.0, step_us=40.0, by_hook={"grammar": 40.0})
MORNING = 1_800_000_000.0
"""What the wall clock says when the monotonic one says 0."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request at a replica."""

    origin: Origin
    received_s: float


@dataclass
class World:
    """One gateway's Trust. `at_s` is the monotonic clock; `told` what it has notified."""

    policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    at_s: float = 0.0
    wall_offset_s: float = MORNING
    told: list[Transition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trust = Trust(self.policy, lambda: self.at_s, lambda: self.wall_offset_s + self.at_s, self.told.append)

    # --- time

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps of at most a second, as the ticks of a gateway."""
        end_s = self.at_s + seconds
        while self.at_s < end_s:
            self.at_s = min(end_s, self.at_s + 1.0)
            self.trust.tick()

    # --- requests

    def origin(self, signature: str = "s1-a", request_id: str = "r1", **more: object) -> Origin:
        plain = Origin(request_id, signature, "acme", "interactive", "gpu-1", BUDGET_US, HARD_US)
        return replace(plain, **more)  # type: ignore[arg-type]

    def attempt(self, ago_s: float = 1.0, **origin: object) -> Attempt:
        return Attempt(self.origin(**origin), self.at_s - ago_s)  # type: ignore[arg-type]

    def verdict(self, signature: str = "s1-a", tenant: str = "acme", cost: HookCost = GRAMMAR) -> Verdict | None:
        return self.trust.verdict(signature, tenant, cost)

    def plain_verdict(self, tenant: str = "acme") -> Verdict | None:
        return self.trust.verdict("s1-plain", tenant, FREE)

    # --- observations

    def step(self, own_us: float, **origin: object) -> None:
        kinds = {"grammar_fill": own_us * 0.9, "stop": own_us * 0.1}
        self.trust.observe_step(StepObservation(self.origin(**origin), self.at_s, own_us, kinds))  # type: ignore[arg-type]

    def rollup(self, steps: int, us: float = 100.0, **origin: object) -> None:
        observation = RollupObservation(self.origin(**origin), self.at_s, steps, steps * us, us, {})  # type: ignore[arg-type]
        self.trust.observe_rollup(observation)

    def compile(self, ms: float, limit_ms: float | None = COMPILE_MS, **origin: object) -> None:
        observation = CompileObservation(self.origin(**origin), self.at_s, ms, None, limit_ms)  # type: ignore[arg-type]
        self.trust.observe_compile(observation)

    def offence(self, limit: Limit, own_us: float = 50_000.0, limit_us: float = 10_000.0, **origin: object) -> None:
        self.trust.observe_offence(
            OffenceObservation(
                self.origin(**origin),  # type: ignore[arg-type]
                self.at_s,
                limit,
                "grammar_fill",
                own_us,
                limit_us,
                aborted=True,
                reason="step_budget_exceeded",
            )
        )

    # --- shortcuts

    def trip(self, signature: str = "s1-a", **origin: object) -> None:
        """One step over the hard limit."""
        self.step(2 * HARD_US, signature=signature, **origin)

    def state(self, key: str = "s1-a", kind: Kind = Kind.signature) -> State:
        record = self.trust.record(kind, key)
        return State.closed if record is None else record.state

    def half_open(self, signature: str = "s1-a") -> None:
        """Trip it and wait until probes may run."""
        self.trip(signature)
        self.pass_time(self.policy.back_off.wait_s(1) + 1.0)
        assert self.state(signature) is State.half_open

    def begin_probe(self, request_id: str, signature: str = "s1-a") -> bool:
        """Ask for a verdict, and take the lease if a probe is offered. Whether a probe runs."""
        verdict = self.verdict(signature)
        if verdict is None or verdict.probe is None:
            return False
        return self.trust.probe_leased(verdict.probe.signature, request_id)

    def end_probe(self, request_id: str, signature: str = "s1-a", answered: bool = True, watched: bool = False) -> None:
        """Its answer ends, and time passes until it is judged."""
        self.trust.finished(request_id, signature, answered=answered, watched=watched)
        self.pass_time(self.policy.probing.settle_s + 1.0)

    def good_probe(self, request_id: str, signature: str = "s1-a") -> None:
        """A whole probe that stays within the limits, once it may run."""
        deadline_s = self.at_s + 1000.0
        while not self.begin_probe(request_id, signature):
            assert self.at_s < deadline_s
            self.pass_time(1.0)
        self.step(BUDGET_US / 2, request_id=request_id, signature=signature, pool="quarantine")
        self.end_probe(request_id, signature)
