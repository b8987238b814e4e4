"""How the steps of each pool are distributed, and how far off predictions were: for metrics. Judges nothing.

Sums over all replicas that the pool has had: they come and go, what was counted stays.
"""

from dataclasses import dataclass, field

from gateway.control.histogram import WeightedHistogram
from gateway.feed.sources import ReplicaProgress
from gateway.hookcost.costbook import CostBook
from gateway.hookcost.observation import RollupObservation

STEP_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
HOOK_BUCKETS_S = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
RATIO_BUCKETS = tuple(2.0**power for power in range(-6, 7))
"""Observed to predicted, by powers of two."""


@dataclass(slots=True)
class StepTimes:
    """Of one pool, in seconds. Replicas tell means of about a second of steps, each of which counts as that mean."""

    step: WeightedHistogram = field(default_factory=lambda: WeightedHistogram(STEP_BUCKETS_S))
    forward: WeightedHistogram = field(default_factory=lambda: WeightedHistogram(STEP_BUCKETS_S))
    hooks: WeightedHistogram = field(default_factory=lambda: WeightedHistogram(HOOK_BUCKETS_S))

    def add(self, progress: ReplicaProgress) -> None:
        """Count the steps of one report."""
        if progress.steps:
            self.step.observe(progress.step_us / 1e6, progress.steps)
            self.forward.observe(progress.forward_us / 1e6, progress.steps)
            self.hooks.observe(progress.hook_us / 1e6, progress.steps)


class PoolSteps:
    """Of one gateway.

    times: by pool. errors: by pool, what a step of a costly request took, divided by what was predicted of it.
    """

    def __init__(self) -> None:
        self.times: dict[str, StepTimes] = {}
        self.errors: dict[str, WeightedHistogram] = {}

    def progress(self, pool: str, progress: ReplicaProgress) -> None:
        """A replica of the pool has reported."""
        times = self.times.get(pool)
        if times is None:
            times = self.times[pool] = StepTimes()
        times.add(progress)

    def rollup(self, observation: RollupObservation, book: CostBook) -> None:
        """A request's steps of about a second were added up; the book knows what was predicted for its signature."""
        origin = observation.origin
        entry = book.entry(origin.signature)
        predicted = None if entry is None else entry.predicted
        if predicted is None or predicted.step_us <= 0.0 or not observation.steps:
            return
        errors = self.errors.get(origin.pool)
        if errors is None:
            errors = self.errors[origin.pool] = WeightedHistogram(RATIO_BUCKETS)
        errors.observe(observation.sum_us / observation.steps / predicted.step_us)
