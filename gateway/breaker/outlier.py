"""Which replica is slow where the others of its pool are not: medians of one window, compared robustly.

Owns the arithmetic and the samples; what follows from it is replica.py's to say. A replica is compared with the others
alone, so that it can't hide behind its own figure: its median must exceed theirs by a factor, by so many median
absolute deviations between them, and by an amount that matters at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

_KEPT = 256
_MAD_TO_SIGMA = 1.4826
"""The MAD of a normal distribution is sigma / 1.4826."""


@dataclass(frozen=True, slots=True)
class OutlierPolicy:
    """When a replica counts as slow.

    factor:        its median over the median of the others'. Three, because the mix of prompts alone makes two.
    deviations:    by how many (scaled) MADs of the others it must lie above them.
    min_samples:   in a window, for a replica to be compared at all.
    min_replicas:  with so many samples: of two nobody can say which is the odd one.
    windows:       in a row, so that one long prompt after the other is no verdict.
    first_byte_floor_s, step_floor_us: by how much it must be slower at the least.
    """

    factor: float = 3.0
    deviations: float = 5.0
    min_samples: int = 20
    min_replicas: int = 3
    windows: int = 3
    first_byte_floor_s: float = 0.5
    step_floor_us: float = 5000.0


class Samples:
    """Values of one window, evenly thinned out when they are many: one in 1, 2, 4, … is kept, 256 at most."""

    __slots__ = ("_count", "_kept", "_stride")

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._count = 0
        self._stride = 1

    def __len__(self) -> int:
        return self._count

    def add(self, value: float) -> None:
        """Take one value."""
        if self._count % self._stride == 0:
            self._kept.append(value)
            if len(self._kept) == _KEPT:
                del self._kept[1::2]
                self._stride *= 2
        self._count += 1

    def median(self) -> float:
        """Of what was kept; there must be a value."""
        return median(self._kept)

    def clear(self) -> None:
        """Begin a new window."""
        self._kept.clear()
        self._count, self._stride = 0, 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """The median of one replica beside that of the others, and above which it is an outlier."""

    own: float
    others: float
    limit: float

    @property
    def is_outlier(self) -> bool:
        """Whether it lies above the limit."""
        return self.own > self.limit


def compare(medians: Mapping[str, float], policy: OutlierPolicy, floor: float) -> dict[str, Comparison]:
    """Each replica with the others; empty where they are too few. `floor` is in the unit of the medians."""
    if len(medians) < max(policy.min_replicas, 2):
        return {}
    compared: dict[str, Comparison] = {}
    for name, own in medians.items():
        others = [value for other, value in medians.items() if other != name]
        center = median(others)
        sigma = _MAD_TO_SIGMA * median([abs(value - center) for value in others])
        limit = max(center * policy.factor, center + policy.deviations * sigma, center + floor)
        compared[name] = Comparison(own, center, limit)
    return compared
