"""Whether a request's cost per token rises with its length: seen in one request, before it is over the budget.

Theory. A mask that takes longer with each accepted token (as in mlc-ai/xgrammar#873) makes a request quadratic. Its
steps lie on a line; noise doesn't, nor does a cost that changes once and stays (the generation has come to another part
of the grammar). So the whole of the request is kept as at most 16 blocks of equally many steps, each by its median, and
a straight line is laid through the medians. It is a slope when the line ends well above its beginning, is as steep in
its second half, would cross the budget within the tokens that a request may still have, and explains the medians far
better than a few constant levels do. When there are 16 blocks each two become one: memory is constant, and noise
averages out.

The x axis counts the steps that were seen. A feed may leave cheap ones out; those seen then lie on a line all the same.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from statistics import median

from gateway.breaker.policy import Slope

_MAX_BLOCKS = 16
_MIN_BLOCKS = 12
_FAR_WORSE = 2.5
"""Constant levels must leave this many times as much unexplained as the line does."""


@dataclass(frozen=True, slots=True)
class Rise:
    """A line through the steps of a request: it has risen to `to_us` in `steps`, and crosses the budget soon."""

    steps: int
    to_us: float


@dataclass(slots=True)
class Track:
    """The steps of one request: medians of full blocks, and the block that is being filled."""

    size: int
    medians: list[float] = field(default_factory=list)
    filling: list[float] = field(default_factory=list)

    def add(self, own_us: float) -> bool:
        """Add a step; True when a block was completed by it."""
        self.filling.append(own_us)
        if len(self.filling) < self.size:
            return False
        if len(self.medians) == _MAX_BLOCKS:
            pairs = zip(self.medians[::2], self.medians[1::2], strict=True)
            self.medians = [(first + second) / 2.0 for first, second in pairs]
            self.size *= 2
            return False
        self.medians.append(median(self.filling))
        self.filling.clear()
        return True


class SlopeWatch:
    """Follows running requests. Bounded: beyond the bound the one that was seen longest ago is let go."""

    def __init__(self, policy: Slope) -> None:
        self._policy = policy
        self._block = max(1, policy.least_steps // _MIN_BLOCKS)
        self._tracks: OrderedDict[str, Track] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tracks)

    def add(self, request_id: str, own_us: float, budget_us: float) -> Rise | None:
        """Add a step of a request; the rise when there is one by now."""
        if own_us < budget_us * self._policy.least_share:
            return None
        track = self._tracks.get(request_id)
        if track is None:
            track = self._tracks[request_id] = Track(self._block)
            if len(self._tracks) > self._policy.requests:
                self._tracks.popitem(last=False)
        if not track.add(own_us):
            return None
        self._tracks.move_to_end(request_id)
        return self._rise(track, budget_us) if len(track.medians) >= _MIN_BLOCKS else None

    def forget(self, request_id: str) -> None:
        """It has ended."""
        self._tracks.pop(request_id, None)

    def _rise(self, track: Track, budget_us: float) -> Rise | None:
        policy, values = self._policy, track.medians
        count = len(values)
        slope, start, fit = line_through(values)
        end = start + slope * (count - 1)
        if slope <= 0.0 or end < policy.growth * max(start, 0.0):
            return None
        if end + slope * policy.horizon_steps / track.size < budget_us:
            return None
        if line_through(values[count // 2 :])[0] < policy.lasting * slope:
            return None
        if (1.0 - fit) * _FAR_WORSE > unexplained_by_levels(values, policy.levels):
            return None
        return Rise(count * track.size, end)


def line_through(values: list[float]) -> tuple[float, float, float]:
    """Least squares through equidistant values: slope per place, value at the first, share of variance explained."""
    count = len(values)
    mean_x, mean_y = (count - 1) / 2.0, sum(values) / count
    xx = sum([(x - mean_x) ** 2 for x in range(count)])
    xy = sum([(x - mean_x) * (y - mean_y) for x, y in enumerate(values)])
    yy = sum([(y - mean_y) ** 2 for y in values])
    slope = xy / xx
    return slope, mean_y - slope * mean_x, (slope * xy / yy if yy > 0.0 else 0.0)


def unexplained_by_levels(values: list[float], levels: int) -> float:
    """Share of the variance that is left when the values are split into so many runs, each at its mean, at best."""
    count = len(values)
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def left(start: int, end: int) -> float:
        return max(0.0, squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start))

    whole = best = left(0, count)
    least = [left(0, end) if end else 0.0 for end in range(count + 1)]
    for _ in range(1, levels):
        least = [
            min([least[cut] + (left(cut, end) if cut < end else 0.0) for cut in range(end + 1)])
            for end in range(count + 1)
        ]
        best = least[count]
    return best / whole if whole > 0.0 else 0.0
