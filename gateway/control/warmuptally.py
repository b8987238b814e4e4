"""What is counted of warm-ups. Plain numbers; names and labels are warmupmetrics.py's."""

from collections import Counter
from typing import Final

from gateway.control.histogram import WeightedHistogram

_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class WarmUpTally:
    """Of one gateway.

    outcomes: ended warm-ups, by pool and by what came of them: `done`; `timeout`; `serving`, where the replica took
              requests before the end, because nobody else did; `gone`, where it went down or away.
    grammars: by pool and by what came of each: `ok`; `refused` by the engine; `broken`, where it broke off; `failed`.
    seconds:  how long they took, by pool.
    """

    __slots__ = ("grammars", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.grammars: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, WeightedHistogram] = {}

    def ended(self, pool: str, outcome: str, seconds: float) -> None:
        """A warm-up is over."""
        self.outcomes[pool, outcome] += 1
        histogram = self.seconds.get(pool)
        if histogram is None:
            histogram = self.seconds[pool] = WeightedHistogram(_BUCKETS_S)
        histogram.observe(seconds)
