"""New prices from measurements: the mechanisms stay, what each costs is fitted to what was seen on the user's machine.

Pure: takes the measurements as data. Prices of mechanisms that the measurements say nothing about keep their place
relative to the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.hookcost.bill import Bill
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.features import Grammar
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.prices import BackendPrices, CostModelError
from gateway.hookcost.vocabulary import Vocabulary, group_mask, group_names

_ROUNDS = 60
_SHRINK = 0.02
"""How strongly a price is held near the old one, in units of a measurement: what is measured often moves freely."""
_LEAST_SHARE = 0.0002
_FLOOR_MS = 1.0
_FLOOR_US = 20.0
_HELD_OUT = 5
"""Of the given schemas every fifth is kept for the test."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The new prices, and how well they hold on measurements that the fit did not see.

    median_error:    of the compile time, as a factor; 1.1 is 10 % off.
    tested, trained: number of measurements held out, and fitted on.
    """

    prices: BackendPrices
    vocabulary: Vocabulary
    median_error: float
    before: float
    trained: int
    tested: int


def fit(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], old: BackendPrices) -> Fit:
    """Fits prices to measurements.

    head: the first line of a measurement file: `size` and `shares` of the tokenizer.
    rows: its other lines: `schema`, `compile_ms`, `step_max_us`, `refused`.

    Raises:
        CostModelError: too few usable measurements.
    """
    vocabulary = Vocabulary(int(head["size"]), {group_mask(name): share for name, share in head["shares"].items()})
    reader = GrammarReader(old.name, vocabulary)
    seen: list[tuple[Bill, float, float]] = []
    kept: list[tuple[Bill, float, float]] = []
    given = 0
    for row in rows:
        if row["refused"] is not None:
            continue
        bill = _bill(reader, row["schema"])
        if bill.heavy or bill.refused:
            continue
        held_out = False
        if str(row["name"]).startswith("given/"):
            given += 1
            held_out = given % _HELD_OUT == 0
        (kept if held_out else seen).append((bill, float(row["compile_ms"]), float(row["step_max_us"])))
    if len(seen) < 10:
        raise CostModelError("measurements", f"only {len(seen)} schemas compiled; at least 10 are needed for a fit")
    compile_ms = {"": old.base_compile_ms, **old.compile_ms}
    compile_ms = _refit([({"": 1.0, **bill.counts}, cost) for bill, cost, _ in seen], compile_ms, _FLOOR_MS)
    step_us = {"": old.base_step_us, **old.step_us}
    step_us = _refit([({"": 1.0, **bill.peaks}, cost) for bill, _, cost in seen], step_us, _FLOOR_US)
    prices = replace(
        old,
        base_compile_ms=compile_ms.pop(""),
        base_step_us=step_us.pop(""),
        compile_ms=compile_ms,
        step_us=step_us,
    )
    test = kept or seen
    return Fit(prices, vocabulary, _error(prices, test), _error(old, test), len(seen), len(kept))


def updated(data: Mapping[str, Any], found: Fit) -> dict[str, Any]:
    """The plain data of a cost model with the new prices and vocabulary in place of the old, ready to be written."""
    prices = found.prices
    entry = {
        **data["backends"][prices.name],
        "measured_tokens": found.vocabulary.size,
        "base": {"compile_ms": _rounded(prices.base_compile_ms), "step_us": _rounded(prices.base_step_us)},
        "compile_ms": {name: _rounded(price) for name, price in prices.compile_ms.items()},
        "step_us": {name: _rounded(price) for name, price in prices.step_us.items()},
    }
    size = found.vocabulary.size
    shares = {group_names(mask): _rounded(share) for mask, share in found.vocabulary.shares if share >= _LEAST_SHARE}
    # What was priced for another vocabulary keeps its `measured_tokens`: it is scaled to the new size when loaded.
    backends = {**data["backends"], prices.name: entry}
    return {**data, "vocabulary": {"size": size, "shares": shares}, "backends": backends}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _bill(reader: GrammarReader, schema: object) -> Bill:
    turns = reader.read(Constraint(Grammar.json_schema, schema, "schema"), 1 << 30)
    while True:
        try:
            next(turns)
        except StopIteration as done:
            bill: Bill = done.value
            return bill


def _refit(rows: list[tuple[dict[str, float], float]], old: Mapping[str, float], floor: float) -> dict[str, float]:
    """Non-negative least squares of the relative error by coordinate descent, each price held near the old one.

    The old prices are first scaled as a whole to the machine, so that what is not measured moves with the rest.
    """
    scale = _median(
        [cost / guess for units, cost in rows if (guess := _price(units, old)) > 0 and cost > floor] or [1.0]
    )
    prices = {name: price * scale for name, price in old.items()}
    weighted = [
        ({name: units[name] / max(cost, floor) for name in units if name in prices}, cost / max(cost, floor))
        for units, cost in rows
    ]
    guesses = [_price(units, prices) for units, _ in weighted]
    for _ in range(_ROUNDS):
        for name, price in prices.items():
            anchor = old[name] * scale
            hold = _SHRINK / max(anchor, 1e-9) ** 2
            above = below = 0.0
            for (units, target), guess in zip(weighted, guesses, strict=True):
                unit = units.get(name)
                if unit:
                    # A row that is far off counts less: it has a cause that no mechanism names.
                    trust = 1.0 / max(0.1, abs(target - guess))
                    above += trust * unit * (target - guess + unit * price)
                    below += trust * unit * unit
            if below == 0.0:
                continue
            new = max(0.0, (above + hold * anchor) / (below + hold))
            if new != price:
                for index, (units, _) in enumerate(weighted):
                    if name in units:
                        guesses[index] += units[name] * (new - price)
                prices[name] = new
    return prices


def _price(units: Mapping[str, float], prices: Mapping[str, float]) -> float:
    return sum(prices[name] * quantity for name, quantity in units.items() if name in prices)


def _error(prices: BackendPrices, rows: list[tuple[Bill, float, float]]) -> float:
    errors = []
    for bill, cost, _ in rows:
        guess, cost = max(prices.compile_of(bill), 1e-3), max(cost, 1e-3)
        errors.append(max(guess / cost, cost / guess))
    return _median(errors)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
