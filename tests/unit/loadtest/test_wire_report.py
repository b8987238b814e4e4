"""What the bench makes of its samples."""

import json

import pytest

from loadtest.wire.driver import Load, Quantiles
from loadtest.wire.report import document, markdown, summarise
from loadtest.wire.rounds import Plan, Sample
from loadtest.wire.workload import KINDS

PLAIN, CHUNK = KINDS[0], KINDS[4]


def load(*, events: int = 0, coalesced: int = 0, errors: int = 0) -> Load:
    times = Quantiles(200.0, 400.0, 900.0)
    delay = Quantiles(50.0, 80.0, 90.0) if events else None
    why = "HTTP/1.1 503 Busy" if errors else ""
    return Load(1000, errors, why, 0, 2.0, 500.0, events, coalesced, times, times, delay, delay)


def sample(contender: str, number: int, cpu_us: float, kind: str = "plain", what: Load | None = None) -> Sample:
    return Sample(contender, kind, number, cpu_us, 0.5, 20 * 2**20, what or load())


def test_ratios_are_taken_within_a_round_and_not_between_medians() -> None:
    pairs = [(10.0, 20.0), (20.0, 40.0), (90.0, 90.0)]
    samples = [sample(name, at, pair[i]) for at, pair in enumerate(pairs) for i, name in enumerate(("base", "mine"))]
    base, mine = summarise(samples, [PLAIN], "base")
    assert (base.ratio, base.cpu_us) == (1.0, 20.0)
    assert (mine.ratio, mine.ratio_min, mine.ratio_max) == (2.0, 1.0, 2.0)
    assert (mine.cpu_us, mine.cpu_us_min, mine.cpu_us_max) == (40.0, 20.0, 90.0)


def test_without_the_yardstick_there_are_figures_but_no_ratios() -> None:
    (row,) = summarise([sample("mine", 0, 20.0)], [PLAIN], "base")
    assert row.ratio is None
    assert "| mine | 20.0 (20.0-20.0) | - |" in markdown([row], [PLAIN], "base")


def test_of_chunks_the_delay_and_the_coalesced_share_are_told() -> None:
    samples = [sample("mine", 0, 9.0, "chunk", load(events=800, coalesced=80))]
    (row,) = summarise(samples, [CHUNK], "base")
    assert (row.p50_us, row.p99_us, row.rate) == (50.0, 80.0, 400.0)
    text = markdown([row], [CHUNK], "base")
    assert "delay p50 / p99" in text
    assert "mine: 10.0% of the chunks came together" in text


def test_errors_are_told_with_the_first_of_them() -> None:
    (row,) = summarise([sample("mine", 0, 9.0, what=load(errors=3))], [PLAIN], "base")
    assert "mine: 3 errors, the first: HTTP/1.1 503 Busy" in markdown([row], [PLAIN], "base")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_table_has_a_title_for_every_kind(kind: object) -> None:
    assert isinstance(kind, type(PLAIN))
    rows = summarise([sample("mine", 0, 9.0, kind.name, load(events=10))], [kind], "mine")
    text = markdown(rows, [kind], "mine")
    assert text.startswith(f"### {kind.title}\n")
    assert f"CPU µs per {kind.unit}" in text


def test_the_document_is_json_and_holds_every_sample() -> None:
    samples = [sample("mine", at, 9.0) for at in range(3)]
    plan = Plan(3, 1.0, (PLAIN,), 0, 1)
    told = json.loads(json.dumps(document(summarise(samples, [PLAIN], "mine"), samples, plan, {"mine": "1.0"})))
    assert len(told["samples"]) == 3
    assert told["rows"][0]["cpu_us"] == 9.0
    assert told["versions"] == {"mine": "1.0"}
