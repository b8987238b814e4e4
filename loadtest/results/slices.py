"""One slice: one phase at one target in one round, as it is kept."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.client.outcome import Outcome
from loadtest.client.stepfeed import Step
from loadtest.results.figures import Figures, figures
from loadtest.results.histogram import Histogram
from loadtest.traffic.scenario import Scenario


@dataclass(slots=True)
class Steps:
    """What the replicas' steps cost in a slice; µs. `own_us`: hook time of a class in each step that had any of it."""

    count: int = 0
    step_us: Histogram = field(default_factory=Histogram)
    forward_us: Histogram = field(default_factory=Histogram)
    hook_us: Histogram = field(default_factory=Histogram)
    own_us: dict[str, Histogram] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Count one step."""
        self.count += 1
        self.step_us.add(step.step_us)
        self.forward_us.add(step.forward_us)
        self.hook_us.add(step.hook_us)
        for name, own_us in step.own_us.items():
            self.own_us.setdefault(name or "other", Histogram()).add(own_us)

    def merge(self, other: "Steps") -> None:
        """Add another slice's steps."""
        self.count += other.count
        for name in ("step_us", "forward_us", "hook_us"):
            getattr(self, name).merge(getattr(other, name))
        for name, histogram in other.own_us.items():
            self.own_us.setdefault(name, Histogram()).merge(histogram)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "count": self.count,
            **{name: getattr(self, name).document() for name in ("step_us", "forward_us", "hook_us")},
            "own_us": {name: histogram.document() for name, histogram in self.own_us.items()},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Steps":
        """What `document` has written."""
        histograms = {name: Histogram.read(document[name]) for name in ("step_us", "forward_us", "hook_us")}
        own_us = {name: Histogram.read(each) for name, each in document["own_us"].items()}
        return cls(count=int(document["count"]), **histograms, own_us=own_us)


@dataclass(slots=True)
class Slice:
    """All that is kept of one.

    began:      Unix time of the first moment at which a request could be due.
    delivered_per_s: tokens that came in the measured time, whenever they were asked for: what a target that has more to
                do than it can gets done.
    classes:    figures by class.
    timeline:   by class, for each second after `began`: arrivals of tokens, p99 and longest of the times before
                them, ms.
    steps:      of the replicas, where feeds are known.
    trips:      seconds after `began` at which the gateway's breakers opened, and what for.
    costs:      what the gateway predicted and observed, by signature (`loadtest.client.gatewayapi.costs`).
    """

    target: str
    phase: str
    round: int
    began: float
    classes: dict[str, Figures]
    delivered_per_s: float = 0.0
    timeline: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)
    trips: list[tuple[float, str]] = field(default_factory=list)
    costs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes it the one."""
        return self.target, self.phase, self.round

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "target": self.target,
            "phase": self.phase,
            "round": self.round,
            "began": self.began,
            "classes": {name: each.document() for name, each in self.classes.items()},
            "delivered_per_s": self.delivered_per_s,
            "timeline": self.timeline,
            "steps": self.steps.document(),
            "trips": self.trips,
            "costs": self.costs,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Slice":
        """What `document` has written. Raises KeyError, TypeError or ValueError for anything else."""
        timeline = {
            name: [(int(count), float(p99), float(most)) for count, p99, most in seconds]
            for name, seconds in document["timeline"].items()
        }
        return cls(
            target=str(document["target"]),
            phase=str(document["phase"]),
            round=int(document["round"]),
            began=float(document["began"]),
            classes={name: Figures.read(each) for name, each in document["classes"].items()},
            delivered_per_s=float(document["delivered_per_s"]),
            timeline=timeline,
            steps=Steps.read(document["steps"]),
            trips=[(float(at), str(what)) for at, what in document["trips"]],
            costs=list(document["costs"]),
        )


def classes_of(scenario: Scenario, phase: str, outcomes: Sequence[Outcome]) -> dict[str, Figures]:
    """Figures of every class of the phase, those that asked nothing included."""
    by_class: dict[str, list[Outcome]] = {name: [] for name in scenario.classes_of(phase)}
    for outcome in outcomes:
        by_class[outcome.planned.kind].append(outcome)
    return {name: figures(those, scenario.classes[name].slo, scenario.duration_s) for name, those in by_class.items()}


def delivered_of(outcomes: Sequence[Outcome], since: float, until: float) -> float:
    """`Slice.delivered_per_s`; moments on the clock of the outcomes. What one read brings is spread over all reads."""
    tokens = 0.0
    for outcome in outcomes:
        if outcome.arrivals:
            came = bisect_left(outcome.arrivals, until) - bisect_left(outcome.arrivals, since)
            tokens += outcome.tokens * came / len(outcome.arrivals)
    return tokens / (until - since)


def timeline_of(outcomes: Sequence[Outcome], began: float, seconds: int) -> dict[str, list[tuple[int, float, float]]]:
    """`Slice.timeline`; `began` on the clock of the outcomes."""
    gaps: dict[str, list[list[float]]] = {}
    for outcome in outcomes:
        own = gaps.setdefault(outcome.planned.kind, [[] for _ in range(seconds)])
        for before, after in zip(outcome.arrivals, outcome.arrivals[1:], strict=False):
            at = int(after - began)
            if 0 <= at < seconds:
                own[at].append(1e3 * (after - before))
    return {name: [_second(sorted(each)) for each in own] for name, own in gaps.items()}


def _second(gaps_ms: list[float]) -> tuple[int, float, float]:
    if not gaps_ms:
        return 0, 0.0, 0.0
    return len(gaps_ms), round(gaps_ms[int(0.99 * (len(gaps_ms) - 1))], 3), round(gaps_ms[-1], 3)
