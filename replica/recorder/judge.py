"""Which request is over which limit: pure decisions on what one step's hooks took.

Theory. A step is held by its hooks for the sum of their times. Over the hard limit somebody must go, and it is the
request that took most, if it stands out: when many small ones add up, nobody is to blame (too many were admitted).
Over the budget in a few steps is bad luck, in many steps of a window it is a habit: the soft limit.
Two things look like guilt and are not: a thread that was starved of CPU, so that wall time passed and no work was
done; and the first run of a kind of hook, which pays for loading and just-in-time compiling code. Neither is judged.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from replica.recorder.records import HookKind, Limit

# The biggest share must be at least this part of the step's hook time to be blamed for it.
_STANDS_OUT = 0.25
# Of the time that is over a limit, at least this part of the limit must have been CPU time of the step thread.
WORKED = 0.5
# Runs of a hook kind in the life of the engine that are taken for warming up.
WARM_UP_RUNS = 2
_REMEMBERED_REQUESTS = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take. 0 switches a limit off.

    hard_us:       hook time of one step.
    budget_us:     hook time of one request in one step, exceeded in `soft_steps` steps within `soft_window_s`.
    compile_ms:    waiting for a grammar to compile.
    abort_hard, abort_soft, abort_compile: end the request, rather than only naming it.
    """

    hard_us: float = 1_000_000.0
    budget_us: float = 0.0
    soft_steps: int = 20
    soft_window_s: float = 10.0
    compile_ms: float = 10_000.0
    abort_hard: bool = True
    abort_soft: bool = False
    abort_compile: bool = True


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step's hooks took, in µs. `own`: by request and kind; `cpu_us`: of the step thread outside the model."""

    hook_us: float
    cpu_us: float
    own: Mapping[str, Mapping[HookKind, float]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rid` is over `limit`, mostly by hooks of `kind`. `said`: a reason that somebody gave, in place of ours."""

    rid: str
    limit: Limit
    kind: HookKind | None
    us: float
    limit_us: float
    abort: bool
    said: str = ""

    @property
    def reason(self) -> str:
        """What the client is told; the gateway and people recognise the first word."""
        if self.said:
            return self.said
        what = {
            Limit.hard: f"hooks of one step took {self.us / 1e3:.1f} ms, the limit is {self.limit_us / 1e3:g} ms",
            Limit.soft: f"hooks took up to {self.us:.0f} us a step, the budget is {self.limit_us:g} us",
            Limit.compile: f"its grammar was not compiled within {self.limit_us / 1e3:g} ms",
            Limit.asked: "ended on request",
        }[self.limit]
        return f"step_budget_exceeded: {what}" + (f" (mostly {self.kind})" if self.kind else "")


@dataclass(slots=True)
class _Habit:
    over_at_s: deque[float]
    worst_us: float = 0.0


@dataclass(slots=True)
class Judge:
    """Judges steps one after the other. Call it from one thread, only for steps that `suspects`."""

    limits: Limits
    _habits: OrderedDict[str, _Habit] = field(default_factory=OrderedDict)
    _runs: dict[HookKind, int] = field(default_factory=lambda: dict.fromkeys(HookKind, 0))

    def suspects(self, hook_us: float) -> bool:
        """Whether a step with this much hook time can hold anybody over a limit."""
        limits = self.limits
        return 0 < limits.hard_us < hook_us or 0 < limits.budget_us < hook_us

    def warm(self, kind: HookKind) -> bool:
        """Whether `kind` has run often enough that its time is its own."""
        return self._runs[kind] > WARM_UP_RUNS

    def ran(self, kind: HookKind) -> None:
        """Count one step in which `kind` ran."""
        self._runs[kind] += 1

    def step(self, at_s: float, cost: StepCost) -> list[Verdict]:
        """Who is over a limit by this step."""
        verdicts: list[Verdict] = []
        totals = {
            rid: own_us
            for rid, own in cost.own.items()
            if (own_us := sum([us for kind, us in own.items() if self.warm(kind)])) > 0.0
        }
        if not totals:
            return verdicts
        limits = self.limits
        worst = max(totals, key=totals.__getitem__)
        if 0 < limits.hard_us < cost.hook_us and self._guilty(totals[worst], cost):
            verdicts.append(
                Verdict(worst, Limit.hard, dearest(cost.own[worst]), totals[worst], limits.hard_us, limits.abort_hard)
            )
        if limits.budget_us > 0:
            for rid, us in totals.items():
                if us > limits.budget_us and cost.cpu_us >= WORKED * limits.budget_us and self._is_habit(rid, at_s, us):
                    habit = self._habits.pop(rid)
                    kind = dearest(cost.own[rid])
                    verdicts.append(Verdict(rid, Limit.soft, kind, habit.worst_us, limits.budget_us, limits.abort_soft))
        return verdicts

    def compile(self, rid: str, waited_ms: float) -> Verdict | None:
        """Whether a grammar that is not ready after `waited_ms` has had its time."""
        limits = self.limits
        if not 0 < limits.compile_ms < waited_ms:
            return None
        return Verdict(rid, Limit.compile, None, waited_ms * 1e3, limits.compile_ms * 1e3, limits.abort_compile)

    def _guilty(self, us: float, cost: StepCost) -> bool:
        stands_out = us >= _STANDS_OUT * cost.hook_us and us >= _STANDS_OUT * self.limits.hard_us
        return stands_out and cost.cpu_us >= WORKED * self.limits.hard_us

    def _is_habit(self, rid: str, at_s: float, us: float) -> bool:
        limits = self.limits
        habit = self._habits.get(rid)
        if habit is None:
            habit = self._habits[rid] = _Habit(deque(maxlen=max(1, limits.soft_steps)))
            if len(self._habits) > _REMEMBERED_REQUESTS:
                self._habits.popitem(last=False)
        habit.over_at_s.append(at_s)
        habit.worst_us = max(habit.worst_us, us)
        full = len(habit.over_at_s) == habit.over_at_s.maxlen
        return full and at_s - habit.over_at_s[0] <= limits.soft_window_s


def dearest(own: Mapping[HookKind, float]) -> HookKind | None:
    """The kind that took most."""
    return max(own, key=own.__getitem__) if own else None
