"""A histogram of durations with a fixed relative error, in constant memory."""

import math
from dataclasses import dataclass, field
from typing import Any

# Bucket bounds grow by this factor: a quantile is right within 5 %.
_GROWTH = 1.1
_LOG = math.log(_GROWTH)
_LEAST_US = 1.0


@dataclass(slots=True)
class Histogram:
    """Counts durations in µs."""

    counts: dict[int, int] = field(default_factory=dict)
    count: int = 0
    sum_us: float = 0.0
    max_us: float = 0.0

    def add(self, us: float, times: int = 1) -> None:
        """Count `us`, `times` times."""
        bucket = 0 if us <= _LEAST_US else math.ceil(math.log(us / _LEAST_US) / _LOG)
        self.counts[bucket] = self.counts.get(bucket, 0) + times
        self.count += times
        self.sum_us += us * times
        self.max_us = max(self.max_us, us)

    def quantile(self, part: float) -> float:
        """The duration in µs that `part` of all stay below; 0 when there are none."""
        wanted = part * self.count
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(_LEAST_US * math.pow(_GROWTH, bucket - 0.5), self.max_us)
        return 0.0

    def document(self) -> dict[str, Any]:
        """Quantiles and non-empty buckets, each as its upper bound and count."""
        return {
            "count": self.count,
            "mean_us": round(self.sum_us / self.count, 1) if self.count else 0.0,
            "p50_us": round(self.quantile(0.5), 1),
            "p90_us": round(self.quantile(0.9), 1),
            "p99_us": round(self.quantile(0.99), 1),
            "max_us": round(self.max_us, 1),
            "buckets": [[round(_LEAST_US * _GROWTH**bucket, 1), self.counts[bucket]] for bucket in sorted(self.counts)],
        }
