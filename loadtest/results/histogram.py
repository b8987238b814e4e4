"""A histogram of high dynamic range: logarithmic buckets two per mille wide, whatever the values' magnitude.

Adds up exactly, so that slices become runs. A quantile is within one per mille of the true one.
"""

import math
from collections.abc import Iterable, Mapping

_WIDTH = math.log(1.002)
_LEAST = 1e-3
"""Smaller values count as this one."""


class Histogram:
    """Counts of values of one unit, which the owner knows."""

    __slots__ = ("_counts", "count", "largest", "total")

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Count one value."""
        bucket = round(math.log(max(value, _LEAST)) / _WIDTH)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)

    def merge(self, other: "Histogram") -> None:
        """Count all that another one has counted."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def quantile(self, share: float) -> float:
        """The value that this share of all values does not exceed; NaN where there is none."""
        if share >= 1 and self.count:
            return self.largest
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(math.exp(bucket * _WIDTH), self.largest)
        return math.nan

    @property
    def mean(self) -> float:
        """NaN where there is no value."""
        return self.total / self.count if self.count else math.nan

    def cdf(self) -> tuple[list[float], list[float]]:
        """Values in ascending order, and the share of all that is not above each."""
        values: list[float] = []
        shares: list[float] = []
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            values.append(math.exp(bucket * _WIDTH))
            shares.append(seen / self.count)
        return values, shares

    def document(self) -> dict[str, object]:
        """For JSON."""
        counts = {str(bucket): self._counts[bucket] for bucket in sorted(self._counts)}
        return {"total": self.total, "largest": self.largest, "counts": counts}

    @classmethod
    def read(cls, document: Mapping[str, object]) -> "Histogram":
        """What `document` has written. Raises KeyError, TypeError or ValueError for anything else."""
        made = cls()
        counts = document["counts"]
        if not isinstance(counts, dict):
            raise TypeError("counts: expected a mapping of buckets to counts")
        made._counts = {int(bucket): int(count) for bucket, count in counts.items()}
        made.count = sum(made._counts.values())
        made.total = float(str(document["total"]))
        made.largest = float(str(document["largest"]))
        return made
