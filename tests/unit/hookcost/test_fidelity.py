"""The shipped prices against real costs of schemas that the fit never saw, split by family.

Reads the measured corpus beside the repository and skips where it is absent; the figures are printed with `pytest -s`.
"""

import csv
import gzip
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson
import pytest

from gateway.hookcost.bill import Bill
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.features import Grammar
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.prices import BackendPrices, CostModel
from gateway.hookcost.vocabulary import Vocabulary

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the measured corpus is not beside the repository")

FITTED = frozenset(
    (
        "BFCLv4-tool",
        "JSON-Schema-Test-Suite",
        "SchemaStore",
        "jsb:Github_hard",
        "jsb:Github_medium",
        "jsb:Glaiveai2K",
        "jsb:Handwritten",
        "jsb:JsonModeEval",
        "jsb:JsonSchemaStore",
        "jsb:Snowplow",
    )
)
"""Families that the prices were fitted on. All others are the test."""
TIMED_OUT_MS = 10_000.0


@dataclass(frozen=True, slots=True)
class Row:
    schema: object
    cost: dict[str, str]


@cache
def unseen() -> list[Row]:
    with gzip.open(DATA / "costs.csv.gz", "rt") as file:
        costs = {row["id"]: row for row in csv.DictReader(file) if row["source"] not in FITTED}
    rows = []
    with gzip.open(DATA / "schemas.jsonl.gz", "rb") as lines:
        for line in lines:
            entry = orjson.loads(line)
            if entry["id"] in costs:
                rows.append(Row(entry["schema"], costs[entry["id"]]))
    return rows


@cache
def bills(vocabulary: Vocabulary, backend: str) -> list[Bill]:
    reader = GrammarReader(backend, vocabulary)
    found = []
    for row in unseen():
        turns = reader.read(Constraint(Grammar.json_schema, row.schema, "schema"), 1 << 30)
        try:
            while True:
                next(turns)
        except StopIteration as done:
            found.append(done.value)
    return found


def measured(model: CostModel, backend: str, prefix: str) -> tuple[BackendPrices, list[tuple[Row, Bill]]]:
    status = f"{prefix}_status"
    found = zip(unseen(), bills(model.vocabulary, backend), strict=True)
    return model.backend(backend), [(row, bill) for row, bill in found if row.cost[status]]


def report(figures: str) -> None:
    sys.stdout.write(f"\n{figures}\n")


def precision_at(recall: float, truth: list[bool], score: list[float]) -> float:
    """The precision of the lowest threshold on `score` that still finds `recall` of the true ones."""
    found = sorted((value for value, true in zip(score, truth, strict=True) if true), reverse=True)
    threshold = found[min(len(found) - 1, max(0, -int(-recall * len(found)) - 1))]
    chosen = [true for value, true in zip(score, truth, strict=True) if value >= threshold]
    return sum(chosen) / len(chosen)


def ranks(values: list[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            found[index] = (start + end - 1) / 2
        start = end
    return found


def spearman(one: list[float], other: list[float]) -> float:
    a, b = ranks(one), ranks(other)
    mean = (len(a) - 1) / 2
    cov = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    var = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return float(cov / var**0.5)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def test_xgrammar_compile_times_of_unseen_families_are_predicted(
    model: CostModel,
) -> None:
    prices, pairs = measured(model, "xgrammar", "xgr")
    pairs = [(row, bill) for row, bill in pairs if row.cost["xgr_status"] != "error" and not bill.refused]
    truth = [float(row.cost["xgr_compile_ms"] or TIMED_OUT_MS) for row, _ in pairs]
    guess = [prices.compile_of(bill) for _, bill in pairs]
    errors = sorted(max(t / g, g / t) for t, g in zip(truth, guess, strict=True))
    costliest = percentile(truth, 0.95)
    worst = precision_at(0.98, [value >= costliest for value in truth], guess)
    slow = precision_at(0.98, [value > 500 for value in truth], guess)
    rank = spearman(truth, guess)
    print(  # noqa: T201
        f"xgrammar, {len(pairs)} unseen: median error x{errors[len(errors) // 2]:.3f}, Spearman {rank:.3f}, "
        f"costliest 5 % at recall 0.98 precision {worst:.3f}, over 500 ms at recall 0.98 precision {slow:.3f}"
    )
    assert errors[len(errors) // 2] <= 1.1
    assert rank >= 0.88
    assert worst >= 0.90
    assert slow >= 0.90


def test_every_xgrammar_mask_over_3_ms_is_caught(model: CostModel) -> None:
    prices, pairs = measured(model, "xgrammar", "xgr")
    pairs = [(row, bill) for row, bill in pairs if row.cost["xgr_fill_max"]]
    truth = [float(row.cost["xgr_fill_max"]) > 3000 for row, _ in pairs]
    guess = [prices.step_of(bill) > 3000 for _, bill in pairs]
    hits = sum(t and g for t, g in zip(truth, guess, strict=True))
    report(f"xgrammar masks over 3 ms: {hits} of {sum(truth)} caught, {sum(guess)} predicted")
    assert hits == sum(truth)
    assert hits / sum(guess) >= 0.5


def test_what_llguidance_refuses_is_predicted(model: CostModel) -> None:
    _, pairs = measured(model, "llguidance", "llg")
    truth = [row.cost["llg_status"] == "error" for row, _ in pairs]
    guess = [bill.refused is not None for _, bill in pairs]
    right = sum(t == g for t, g in zip(truth, guess, strict=True)) / len(pairs)
    caught = sum(t and g for t, g in zip(truth, guess, strict=True))
    print(  # noqa: T201
        f"llguidance refusals, {len(pairs)} unseen: {right:.3f} right, precision {caught / sum(guess):.3f}, "
        f"recall {caught / sum(truth):.3f}"
    )
    assert right >= 0.95


def test_llguidance_compile_times_of_unseen_families_are_predicted(
    model: CostModel,
) -> None:
    prices, pairs = measured(model, "llguidance", "llg")
    pairs = [(row, bill) for row, bill in pairs if row.cost["llg_status"] == "ok"]
    truth = [float(row.cost["llg_compile_ms"]) for row, _ in pairs]
    guess = [prices.compile_of(bill) for _, bill in pairs]
    costliest = percentile(truth, 0.95)
    worst = precision_at(0.95, [value >= costliest for value in truth], guess)
    report(f"llguidance compile, {len(pairs)} unseen: costliest 5 % at recall 0.95 precision {worst:.3f}")
    assert spearman(truth, guess) >= 0.8
