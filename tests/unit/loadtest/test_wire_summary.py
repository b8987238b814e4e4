"""The bench on one screen, and as a picture."""

from pathlib import Path

import pytest

from loadtest.wire.contenders import DIRECT
from loadtest.wire.driver import Load, Quantiles
from loadtest.wire.plot import draw
from loadtest.wire.report import summarise
from loadtest.wire.rounds import Sample
from loadtest.wire.scale import slope
from loadtest.wire.summary import lines, markdown
from loadtest.wire.workload import KINDS


def sample(contender: str, kind: str, cpu_us: float, latency_us: float) -> Sample:
    times = Quantiles(latency_us, 2 * latency_us, 3 * latency_us)
    events = 1000 if kind == "chunk" else 0
    load = Load(1000, 0, "", 0, 2.0, 500.0, events, 0, times, times, times if events else None, None)
    return Sample(contender, kind, 0, cpu_us, 0.5, 20 * 2**20, load)


SAMPLES = [
    sample(DIRECT, "plain", 0.0, 100.0),
    sample("base", "plain", 10.0, 300.0),
    sample("mine", "plain", 15.0, 600.0),
    sample("base", "schema", 10.0, 300.0),
    sample("mine", "schema", 16.0, 300.0),
    sample("base", "chunk", 20.0, 50.0),
]
ROWS = summarise(SAMPLES, KINDS, "base")


def test_each_gateway_has_a_line_with_what_it_adds_to_asking_a_replica_directly() -> None:
    base, mine = lines(ROWS)
    assert (base.name, base.plain_us, base.schema_us, base.chunk_us) == ("base", 10.0, 10.0, 20.0)
    assert (base.added_p50_ms, base.added_p99_ms) == (pytest.approx(0.2), pytest.approx(0.4))
    assert (mine.added_p50_ms, mine.added_p99_ms) == (pytest.approx(0.5), pytest.approx(1.0))
    assert mine.ratios == (1.5, 1.6, None)
    assert (mine.paced_p50_ms, mine.peak, mine.rss_mib) == (None, 500.0, 20.0)


def test_what_was_not_measured_is_a_dash_and_who_was_not_measured_is_named() -> None:
    text = markdown(ROWS, "base", ["rival: it is not installed"])
    assert "| mine | 15.0 (1.50) | 16.0 (1.60) | - | 0.50 / 1.00 | - | 500 | 20 |" in text
    assert DIRECT not in text
    assert "Not measured: rival: it is not installed" in text


def test_it_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "folder" / "bench.png"
    draw(lines(ROWS), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_growth_is_the_slope_of_the_fitted_line() -> None:
    assert slope((1, 16, 64), (12.0, 27.0, 75.0)) == pytest.approx(1.0)
