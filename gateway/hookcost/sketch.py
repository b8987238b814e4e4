"""A histogram with bounds that grow by a constant factor: quantiles within 9 %, and two of them add up to a third."""

import math
from collections.abc import Iterable

_PER_OCTAVE = 4
_HIGHEST = 40 * _PER_OCTAVE
_MOST = 2.0**40
"""Twelve days; all that is longer is in one bucket."""


def bucket_of(value: float) -> int:
    """The bucket of a duration in µs: 0 up to 1 µs, then four to each doubling."""
    if value <= 1.0:
        return 0
    return _HIGHEST if value >= _MOST else math.ceil(math.log2(value) * _PER_OCTAVE)


def upper_bound(bucket: int) -> float:
    """The largest duration in µs that belongs to a bucket."""
    return float(2.0 ** (bucket / _PER_OCTAVE))


def quantile(counts: Iterable[tuple[int, float]], part: float) -> float:
    """The duration in µs that `part` of all stay below, from the middle of its bucket; 0 when there are none."""
    ordered = sorted(counts)
    wanted = part * sum([count for _, count in ordered], 0.0)
    seen = 0.0
    for bucket, count in ordered:
        seen += count
        if seen >= wanted:
            return upper_bound(bucket) if bucket == 0 else float(2.0 ** ((bucket - 0.5) / _PER_OCTAVE))
    return 0.0
