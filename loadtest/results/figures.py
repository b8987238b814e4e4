"""What came of one class of traffic in one slice: counts and histograms, from outcomes. Adds up over slices."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.client.outcome import Outcome
from loadtest.results.histogram import Histogram
from loadtest.traffic.scenario import Slo

_HISTOGRAMS = ("ttft_ms", "itl_ms", "stream_itl_p99_ms", "e2e_ms", "late_ms")
_SAID = 100
"""Characters of an error that tell it from others."""
_COUNTS = ("asked", "answered", "failed", "left", "good", "tokens", "validated", "invalid", "truncated")


@dataclass(slots=True)
class Figures:
    """One class's figures. Times in ms.

    seconds:  of measured time in which its requests were due.
    asked:    requests that were due in it; each was answered well, has failed, or left as it was told to.
    good:     answered well and within the SLO, a structured one with a valid reply.
    tokens:   events with text of those that were asked in it.
    validated, invalid, truncated: structured replies that were looked at, those among them that do not satisfy their
        schema, and those that ended at their length, which nobody can judge.
    ttft_ms:  from when it was due to its first token.
    itl_ms:   between arrivals of tokens, of all streams.
    stream_itl_p99_ms: one value a stream.
    late_ms:  how much later than due it was sent: the client's own fault.
    """

    seconds: float = 0.0
    asked: int = 0
    answered: int = 0
    failed: int = 0
    left: int = 0
    good: int = 0
    tokens: int = 0
    validated: int = 0
    invalid: int = 0
    truncated: int = 0
    ttft_ms: Histogram = field(default_factory=Histogram)
    itl_ms: Histogram = field(default_factory=Histogram)
    stream_itl_p99_ms: Histogram = field(default_factory=Histogram)
    e2e_ms: Histogram = field(default_factory=Histogram)
    late_ms: Histogram = field(default_factory=Histogram)
    errors: Counter[str] = field(default_factory=Counter)
    pools: Counter[str] = field(default_factory=Counter)

    def merge(self, other: "Figures") -> None:
        """Add another slice's figures."""
        self.seconds += other.seconds
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _HISTOGRAMS:
            getattr(self, name).merge(getattr(other, name))
        self.errors.update(other.errors)
        self.pools.update(other.pools)

    @property
    def goodput_per_s(self) -> float:
        """Good requests a second."""
        return self.good / self.seconds if self.seconds else math.nan

    def document(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        histograms = {name: getattr(self, name).document() for name in _HISTOGRAMS}
        return {"seconds": self.seconds, **counts, **histograms, "errors": dict(self.errors), "pools": dict(self.pools)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Figures":
        """What `document` has written. Raises KeyError, TypeError or ValueError for anything else."""
        made = cls(seconds=float(document["seconds"]))
        for name in _COUNTS:
            setattr(made, name, int(document[name]))
        for name in _HISTOGRAMS:
            setattr(made, name, Histogram.read(document[name]))
        made.errors.update(document["errors"])
        made.pools.update(document["pools"])
        return made


def figures(outcomes: Iterable[Outcome], slo: Slo, seconds: float) -> Figures:
    """The figures of one class in one slice, of the requests that were due in its measured time."""
    made = Figures(seconds=seconds)
    for outcome in outcomes:
        if outcome.planned.measured:
            _count(made, outcome, slo)
    return made


def _count(made: Figures, outcome: Outcome, slo: Slo) -> None:
    made.asked += 1
    made.tokens += outcome.tokens
    if outcome.sent:
        made.late_ms.add(1e3 * (outcome.sent - outcome.due))
    if outcome.pool:
        made.pools[outcome.pool] += 1
    itl = [1e3 * (b - a) for a, b in zip(outcome.arrivals, outcome.arrivals[1:], strict=False)]
    for gap_ms in itl:
        made.itl_ms.add(gap_ms)
    p99_ms = sorted(itl)[math.ceil(0.99 * len(itl)) - 1] if itl else None
    if p99_ms is not None:
        made.stream_itl_p99_ms.add(p99_ms)
    ttft_ms = 1e3 * (outcome.arrivals[0] - outcome.due) if outcome.arrivals else None
    if ttft_ms is not None:
        made.ttft_ms.add(ttft_ms)
    if outcome.left:
        made.left += 1
        return
    if outcome.error or outcome.ended is None:
        made.failed += 1
        made.errors[outcome.error[:_SAID] or "no end"] += 1
        return
    made.answered += 1
    e2e_s = outcome.ended - outcome.due
    made.e2e_ms.add(1e3 * e2e_s)
    _judge(made, outcome)
    made.good += outcome.valid is not False and _within(slo, ttft_ms, p99_ms, e2e_s)


def _judge(made: Figures, outcome: Outcome) -> None:
    if outcome.planned.schema is None:
        return
    if outcome.valid is None:
        made.truncated += 1
        return
    made.validated += 1
    if not outcome.valid:
        made.invalid += 1
        made.errors[f"invalid: {outcome.why_invalid[:_SAID]}"] += 1


def _within(slo: Slo, ttft_ms: float | None, p99_ms: float | None, e2e_s: float) -> bool:
    return (
        (slo.ttft_ms is None or (ttft_ms is not None and ttft_ms <= slo.ttft_ms))
        and (slo.itl_p99_ms is None or p99_ms is None or p99_ms <= slo.itl_p99_ms)
        and (slo.e2e_s is None or e2e_s <= slo.e2e_s)
    )
