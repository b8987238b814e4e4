"""Who is to blame for slow streams when nobody measures the steps: decided by a control, or not at all.

Theory. A slow replica has many possible reasons: more concurrency, a cold prefill queue, a noisy neighbour. A signature
is suspect only if requests without any hooks on the same replica, at the same concurrency, are slow while it runs there
alone, and are not while nothing suspect runs. Gaps between tokens of such plain streams are kept by period: from one
change of who runs to the next. The signature is blamed when every one of several periods with it is slower than all
periods without, by so much that the middle halves of their gaps do not overlap. Two suspects at a time prove nothing.

Pure: told of gaps, asked for evidence.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

_LEAST_GAPS = 8
"""In a period that counts."""
_LEAST_PERIODS = 4
"""Each way. Chance alone puts two of four above the other two once in six times, four of eight once in seventy."""
_LEAST_GAPS_IN_ALL = 40
_SLOWER = 1.25
"""By at least this factor."""
_MOST_PERIODS = 8
_MOST_GAPS = 64
_MOST_CELLS = 128
_FORGOTTEN_AFTER_S = 120.0


@dataclass(slots=True)
class Period:
    """Gaps in seconds of plain streams while the same signature, or none, was the only suspect.

    stretch:  numbers the time from one change of suspect to the next; periods of one stretch are one.
    suspects: most requests of the signature that ran at a time.
    last_s:   clock reading at the latest gap.
    """

    at_s: float
    stretch: int
    suspects: int
    last_s: float = -math.inf
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_GAPS))


@dataclass(frozen=True, slots=True)
class Excess:
    """A signature makes plain requests slower by `us` a token for each of its requests that runs."""

    signature: str
    us: float


@dataclass(slots=True)
class Control:
    """What plain streams on one replica went through. `""` stands for the time in which nothing suspect ran."""

    _cells: OrderedDict[tuple[str, int], deque[Period]] = field(default_factory=OrderedDict)
    _judged_s: float = -math.inf

    def period(self, signature: str, level: int, stretch: int, suspects: int, at_s: float) -> Period:
        """Where gaps belong from now on: `suspects` requests of `signature` run, at a `level` of concurrency."""
        key = (signature, level)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = deque(maxlen=_MOST_PERIODS)
            if len(self._cells) > _MOST_CELLS:
                self._cells.popitem(last=False)
        else:
            self._cells.move_to_end(key)
        if cell and cell[-1].stretch == stretch:
            period = cell[-1]
            period.suspects = max(period.suspects, suspects)
            return period
        if cell and len(cell[-1].gaps) < _LEAST_GAPS:
            cell.pop()  # too short to count: its place is for one that may
        period = Period(at_s, stretch, suspects)
        cell.append(period)
        return period

    @property
    def last_s(self) -> float:
        """Clock reading at the latest gap of all."""
        return max((cell[-1].last_s for cell in self._cells.values() if cell), default=-math.inf)

    def median_us(self) -> float | None:
        """The median of the latest gaps while nothing suspect ran; None without any."""
        latest = [cell[-1] for (signature, _), cell in self._cells.items() if not signature and cell and cell[-1].gaps]
        if not latest:
            return None
        return median(max(latest, key=lambda period: period.last_s).gaps) * 1e6

    def evidence(self, now_s: float) -> list[Excess]:
        """Who is to blame by what has come since this was last asked."""
        found: list[Excess] = []
        for (signature, level), cell in list(self._cells.items()):
            while cell and max(cell[0].at_s, cell[0].last_s) < now_s - _FORGOTTEN_AFTER_S:
                cell.popleft()
            if not cell:
                del self._cells[signature, level]
            elif signature and cell[-1].last_s > self._judged_s:
                excess = self._judge(signature, level, cell)
                if excess is not None:
                    found.append(excess)
        self._judged_s = now_s
        return found

    def _judge(self, signature: str, level: int, cell: Sequence[Period]) -> Excess | None:
        with_it, without = _counting(cell), _counting(self._cells.get(("", level), ()))
        if len(with_it) < _LEAST_PERIODS or len(without) < _LEAST_PERIODS:
            return None
        return _compare(signature, with_it, without)


def _counting(periods: Sequence[Period]) -> list[Period]:
    return [period for period in periods if len(period.gaps) >= _LEAST_GAPS]


def _compare(signature: str, with_it: list[Period], without: list[Period]) -> Excess | None:
    """The excess, if it is plain to see in each period."""
    fast = [gap for period in without for gap in period.gaps]
    slow = [gap for period in with_it for gap in period.gaps]
    if min(len(fast), len(slow)) < _LEAST_GAPS_IN_ALL:
        return None
    _, fast_median, fast_high = quantiles(fast, n=4)
    slow_low, slow_median, _ = quantiles(slow, n=4)
    if slow_low <= fast_high or slow_median < _SLOWER * fast_median:
        return None
    slowest_without = max(quantiles(period.gaps, n=4)[1] for period in without)
    fastest_with = min(quantiles(period.gaps, n=4)[1] for period in with_it)
    if fastest_with <= slowest_without:
        return None
    together = max(period.suspects for period in with_it)
    excess_us = (slow_median - fast_median) * 1e6 / together
    return Excess(signature, excess_us)
