"""What the steps of each replica took in all since the start: plain sums, for metrics. Judges nothing."""

from dataclasses import dataclass

from gateway.feed.sources import ReplicaProgress


@dataclass(slots=True)
class StepTotals:
    """Ended steps of one replica, and the seconds that they, the model in them and the hooks in them took.

    longest_s: the longest of those that were told of last.
    """

    steps: int = 0
    step_s: float = 0.0
    forward_s: float = 0.0
    hook_s: float = 0.0
    longest_s: float = 0.0

    def add(self, progress: ReplicaProgress) -> None:
        """Count the steps of one report, which gives means."""
        self.steps += progress.steps
        self.step_s += progress.steps * progress.step_us / 1e6
        self.forward_s += progress.steps * progress.forward_us / 1e6
        self.hook_s += progress.steps * progress.hook_us / 1e6
        if progress.steps:
            self.longest_s = progress.step_max_us / 1e6
