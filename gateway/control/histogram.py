"""A histogram of what is heard of about once a second: observations with a weight. Knows not of what."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.utils import floatToGoString


class WeightedHistogram:
    """`bounds`: upper ends of the buckets, rising; what is above them is counted, too."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0.0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of all values, each as often as it weighs."""

    def observe(self, value: float, weight: float = 1.0) -> None:
        """Count a value as often as it weighs."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: each upper bound with the count of all observations up to it."""
        total = 0.0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
        return buckets
