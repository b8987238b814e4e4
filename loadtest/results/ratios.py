"""What hostile traffic does to everybody else, as ratios of what all whole rounds came to together."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from loadtest.results.figures import Figures
from loadtest.results.run import Run

CALM, HOSTILE = "calm", "hostile"


@dataclass(frozen=True, slots=True)
class Ratios:
    """One class at one target: with hostile traffic ÷ without it. NaN where there is nothing to compare."""

    itl_p99: float
    ttft_p99: float
    goodput: float


def ratios(run: Run, target: str, name: str) -> Ratios:
    """Those of one class."""
    return Ratios(
        _ratio(run, target, name, lambda each: each.itl_ms.quantile(0.99)),
        _ratio(run, target, name, lambda each: each.ttft_ms.quantile(0.99)),
        _ratio(run, target, name, lambda each: each.goodput_per_s),
    )


def goodput_per_s(run: Run, target: str, phase: str, names: list[str]) -> float:
    """Good requests a second of these classes together."""
    found = [run.figures(target, phase, name) for name in names]
    return sum([each.goodput_per_s for each in found if each.seconds], 0.0)


def throughput(run: Run, target: str, other: str, phase: str) -> float:
    """What a target delivered ÷ what another one did: the median of all rounds' ratios. NaN where there is none."""
    found = []
    for turn in run.rounds(target):
        own, others = (run.delivered_per_s(name, phase, turn) for name in (target, other))
        if others > 0:
            found.append(own / others)
    return median(found) if found else math.nan


def _ratio(run: Run, target: str, name: str, value: Callable[[Figures], float]) -> float:
    both = []
    for phase in (CALM, HOSTILE):
        total = Figures()
        for turn in run.rounds(target):
            total.merge(run.figures(target, phase, name, turn))
        both.append(value(total))
    calm, hostile = both
    return hostile / calm if calm > 0 else math.nan
