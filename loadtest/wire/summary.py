"""The bench on one screen: a line for each gateway, with what it costs and what it adds.

Owns which figures stand there and what a latency is added to. The tables of report.py have the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.wire.contenders import DIRECT
from loadtest.wire.report import Row


@dataclass(frozen=True, slots=True)
class Line:
    """One gateway; None where something was not measured.

    plain_us, schema_us, chunk_us: CPU time of a request without and with a schema, and of an SSE chunk.
    added_p50_ms, added_p99_ms:    what it adds to the latency of 16 connections that ask again at once.
    paced_p50_ms, paced_p99_ms:    the same at 2,000 requests a second, where nobody is the bottleneck.
    peak:                          requests a second on one core.
    """

    name: str
    plain_us: float | None
    schema_us: float | None
    chunk_us: float | None
    ratios: tuple[float | None, float | None, float | None]
    added_p50_ms: float | None
    added_p99_ms: float | None
    paced_p50_ms: float | None
    paced_p99_ms: float | None
    peak: float | None
    rss_mib: float


_RATED = ("plain", "schema", "chunk")


def lines(rows: Sequence[Row]) -> list[Line]:
    """A line for each gateway, in the order of the rows."""
    by_kind: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_kind.setdefault(row.contender, {})[row.kind] = row
    direct = by_kind.pop(DIRECT, {})
    return [_line(name, of, direct) for name, of in by_kind.items()]


def _line(name: str, of: Mapping[str, Row], direct: Mapping[str, Row]) -> Line:
    rated = [of.get(kind) for kind in _RATED]
    plain, paced = of.get("plain"), of.get("paced")
    return Line(
        name=name,
        plain_us=_cost_of(rated[0]),
        schema_us=_cost_of(rated[1]),
        chunk_us=_cost_of(rated[2]),
        ratios=(_ratio(rated[0]), _ratio(rated[1]), _ratio(rated[2])),
        added_p50_ms=_added(plain, direct.get("plain"), "p50"),
        added_p99_ms=_added(plain, direct.get("plain"), "p99"),
        paced_p50_ms=_added(paced, direct.get("paced"), "p50"),
        paced_p99_ms=_added(paced, direct.get("paced"), "p99"),
        peak=None if plain is None else plain.rate,
        rss_mib=max(row.rss_bytes for row in of.values()) / 2**20,
    )


def _cost_of(row: Row | None) -> float | None:
    return None if row is None else row.cpu_us


def _ratio(row: Row | None) -> float | None:
    return None if row is None else row.ratio


def _added(row: Row | None, direct: Row | None, which: str) -> float | None:
    """Milliseconds."""
    if row is None or direct is None:
        return None
    with_it = row.p50_us if which == "p50" else row.p99_us
    without = direct.p50_us if which == "p50" else direct.p99_us
    return None if with_it is None or without is None else (with_it - without) / 1e3


def markdown(rows: Sequence[Row], yardstick: str, left_out: Sequence[str]) -> str:
    """The table, what is behind it, and who is missing and why."""
    parts = [
        f"| gateway | CPU µs per request (x {yardstick}) | with a schema | per SSE chunk "
        "| added latency p50 / p99 ms, 16 connections | the same at 2,000/s | requests/s on one core | RSS MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines(rows):
        costs = [
            _cost(cost, ratio)
            for cost, ratio in zip((line.plain_us, line.schema_us, line.chunk_us), line.ratios, strict=True)
        ]
        peak = "-" if line.peak is None else f"{line.peak:,.0f}"
        parts.append(
            f"| {line.name} | {' | '.join(costs)} | {_pair(line.added_p50_ms, line.added_p99_ms)} "
            f"| {_pair(line.paced_p50_ms, line.paced_p99_ms)} | {peak} | {line.rss_mib:.0f} |"
        )
    parts += [f"\nNot measured: {reason}" for reason in left_out]
    return "\n".join(parts) + "\n"


def _cost(cost: float | None, ratio: float | None) -> str:
    if cost is None:
        return "-"
    shown = f"{cost:,.0f}" if cost >= 100 else f"{cost:.1f}"
    return shown if ratio is None else f"{shown} ({ratio:.2f})"


def _pair(p50: float | None, p99: float | None) -> str:
    return "-" if p50 is None or p99 is None else f"{p50:.2f} / {p99:.2f}"
