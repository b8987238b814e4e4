"""Which source the gateway has on each replica, and how good it is. Data only; whoever senses writes it."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """Where knowledge of a replica's steps comes from, best first."""

    steps = "steps"
    """Its step feed: every step, attributed to requests."""
    metrics = "metrics"
    """The engine's `/metrics`: sums over seconds, attributed to nobody."""
    itl = "itl"
    """The gaps between chunks that the gateway itself sees on streams."""
    none = "none"


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One replica's source, as people see it.

    since_s:       seconds for which it has been this source.
    feed_url:      where its step feed is, or is looked for; None: nowhere.
    engine, version, boot: as the feed says; "" while it has not spoken.
    lag_s:         age of the last rollup when it arrived, by both sides' wall clocks; None before the first.
    records:       lines taken.
    lost:          records that were overwritten before this gateway read them.
    garbage:       lines that were no records.
    unattributed:  records about requests that are not this gateway's, or are long over.
    starved:       steps in which the step thread waited for a CPU, so that nobody was blamed.
    boots:         runs of the engine that were seen.
    last_error:    why there is no step feed now; None where there is one, or none is wanted.
    """

    replica: str
    source: Source
    since_s: float
    feed_url: str | None
    engine: str
    version: str
    boot: str
    lag_s: float | None
    records: int
    lost: int
    garbage: int
    unattributed: int
    starved: int
    boots: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How a replica's steps go, about once a second while its feed speaks.

    steps:       that ended since the last report; the means below are over them, and 0 without any.
    step_us:     mean duration; `step_max_us` the longest.
    forward_us:  mean of the model's part; `hook_us` of the hooks'.
    sequences:   mean batch size.
    step_runs_s: age of a step that has not ended yet; growing from report to report: it may never.
    advanced_s:  clock reading when a step was last known to have ended.
    """

    replica: str
    at_s: float
    steps: int
    step_us: float
    step_max_us: float
    forward_us: float
    hook_us: float
    sequences: float
    step_runs_s: float
    advanced_s: float
