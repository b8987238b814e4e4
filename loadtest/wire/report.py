"""What the samples say: medians and spreads, ratios within a round, as Markdown and as JSON.

Owns the arithmetic over samples and their rendering. Measures nothing.
"""

import platform
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from loadtest.wire.driver import Quantiles
from loadtest.wire.rounds import Plan, Sample
from loadtest.wire.workload import Kind


@dataclass(frozen=True, slots=True)
class Row:
    """One gateway under one kind of traffic, over all rounds; times in microseconds, medians unless a name says so."""

    contender: str
    kind: str
    cpu_us: float
    cpu_us_min: float
    cpu_us_max: float
    ratio: float | None
    """Median over the rounds of the CPU time against the yardstick's in the same round; None without a yardstick."""
    ratio_min: float | None
    ratio_max: float | None
    busy: float
    rate: float
    p50_us: float | None
    """Of requests: the latency; of chunks: the delay from engine to client."""
    p99_us: float | None
    coalesced_share: float
    """Of chunks: those that came in one read with the chunk before."""
    rss_bytes: int
    errors: int
    first_error: str


def _median_of(quantiles: Iterable[Quantiles | None], pick: Callable[[Quantiles], float]) -> float | None:
    values = [pick(each) for each in quantiles if each is not None]
    return statistics.median(values) if values else None


def _row(samples: Sequence[Sample], kind: Kind, yardstick: Mapping[int, float]) -> Row:
    costs = [sample.cpu_us for sample in samples]
    rated = [sample for sample in samples if sample.round in yardstick and sample.cpu_us > 0]
    ratios = [sample.cpu_us / yardstick[sample.round] for sample in rated]
    times = [sample.load.event_delay_us if kind.chunks else sample.load.latency_us for sample in samples]
    events = sum(sample.load.events for sample in samples)
    return Row(
        contender=samples[0].contender,
        kind=kind.name,
        cpu_us=statistics.median(costs),
        cpu_us_min=min(costs),
        cpu_us_max=max(costs),
        ratio=statistics.median(ratios) if ratios else None,
        ratio_min=min(ratios, default=None),
        ratio_max=max(ratios, default=None),
        busy=statistics.median(sample.busy for sample in samples),
        rate=statistics.median(
            (sample.load.events / sample.load.seconds if kind.chunks else sample.load.rate) for sample in samples
        ),
        p50_us=_median_of(times, lambda quantiles: quantiles.p50),
        p99_us=_median_of(times, lambda quantiles: quantiles.p99),
        coalesced_share=sum(sample.load.coalesced for sample in samples) / events if events else 0.0,
        rss_bytes=max(sample.rss_bytes for sample in samples),
        errors=sum(sample.load.errors for sample in samples),
        first_error=next((sample.load.first_error for sample in samples if sample.load.first_error), ""),
    )


def summarise(samples: Sequence[Sample], kinds: Sequence[Kind], yardstick: str) -> list[Row]:
    """A row for each kind and gateway, in the order in which they were first measured."""
    rows: list[Row] = []
    for kind in kinds:
        of_kind = [sample for sample in samples if sample.kind == kind.name]
        base = {sample.round: sample.cpu_us for sample in of_kind if sample.contender == yardstick}
        names = dict.fromkeys(sample.contender for sample in of_kind)
        rows += [_row([each for each in of_kind if each.contender == name], kind, base) for name in names]
    return rows


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(row: Row) -> str:
    if row.ratio is None:
        return "-"
    return f"**{row.ratio:.2f}** ({row.ratio_min:.2f}-{row.ratio_max:.2f})"


def markdown(rows: Sequence[Row], kinds: Sequence[Kind], yardstick: str) -> str:
    """One table for each kind of traffic."""
    parts = []
    for kind in kinds:
        of_kind = [row for row in rows if row.kind == kind.name]
        if not of_kind:
            continue
        time_title = "delay" if kind.chunks else "latency"
        parts += [
            f"### {kind.title}",
            "",
            f"| gateway | CPU µs per {kind.unit}, median (min-max) | x {yardstick}, median (min-max) "
            f"| {kind.unit}s/s | busy | {time_title} p50 / p99 µs | RSS MiB |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in of_kind:
            cost = f"{row.cpu_us:.1f} ({row.cpu_us_min:.1f}-{row.cpu_us_max:.1f})"
            times = f"{_number(row.p50_us)} / {_number(row.p99_us)}"
            parts.append(
                f"| {row.contender} | {cost} | {_ratio(row)} | {row.rate:,.0f} | {row.busy:.0%} | {times} "
                f"| {row.rss_bytes / 2**20:.0f} |"
            )
        parts += [
            f"\n{row.contender}: {row.coalesced_share:.1%} of the chunks came together with the chunk before."
            for row in of_kind
            if row.coalesced_share > 0.01
        ]
        parts += [
            f"\n{row.contender}: {row.errors} errors, the first: {row.first_error}" for row in of_kind if row.errors
        ]
        parts.append("")
    return "\n".join(parts)


def document(
    rows: Sequence[Row], samples: Sequence[Sample], plan: Plan, versions: Mapping[str, str]
) -> dict[str, object]:
    """Everything that was measured and on what, for JSON."""
    return {
        "machine": {"processor": _processor(), "kernel": platform.release(), "python": platform.python_version()},
        "versions": dict(versions),
        "plan": asdict(plan),
        "rows": [asdict(row) for row in rows],
        "samples": [asdict(sample) for sample in samples],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
