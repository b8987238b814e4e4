"""New prices from measurements: the mechanisms stay, what each costs is fitted to what was seen on the user's machine.

Pure: takes the measurements as data. Prices of mechanisms that the measurements say nothing about keep their place
relative to the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from gateway.hookcost.bill import Bill
from gateway.hookcost.constraint import Constraint
from gateway.hookcost.features import Grammar
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.prices import BackendPrices, CostModelError, version_of
from gateway.hookcost.turns import at_once
from gateway.hookcost.vocabulary import Vocabulary, group_mask, group_names

_ROUNDS = 60
_SHRINK = 0.02
"""How strongly a price is held near the old one, in units of a measurement: what is measured often moves freely."""
_LEAST_SHARE = 0.0002
_FLOOR_MS = 0.2
_FLOOR_US = 20.0
_HELD_OUT = 5
_FEWEST = 10


@dataclass(frozen=True, slots=True)
class Quality:
    """How well prices hold on measurements.

    compile_error, step_error: medians, as factors; 1.1 is 10 % off.
    compile_rank:              Spearman's rank correlation of predicted and measured compile times.
    """

    compile_error: float
    step_error: float
    compile_rank: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The new prices, and how well the old and the new ones hold on measurements that the fit did not see.

    version:         of the backend that was measured.
    trained, tested: number of measurements fitted on, and held out.
    of_given:        what was held out is of the user's own schemas, not of the made-up ones.
    refused:         number of schemas that the backend did not compile.
    """

    prices: BackendPrices
    vocabulary: Vocabulary
    version: str
    before: Quality
    after: Quality
    trained: int
    tested: int
    of_given: bool
    refused: int


@dataclass(frozen=True, slots=True)
class _Row:
    bill: Bill
    compile_ms: float
    step_us: float
    given: bool


def fit(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], old: BackendPrices) -> Fit:
    """Fits prices to measurements.

    head: the first line of a measurement file: `version` of the backend, `size` and `shares` of the tokenizer.
    rows: its other lines: `name`, `schema`, `compile_ms`, `step_max_us`, `refused`.

    Raises:
        CostModelError: too few usable measurements.
    """
    vocabulary = Vocabulary(int(head["size"]), {group_mask(name): share for name, share in head["shares"].items()})
    reader = GrammarReader(old.name, vocabulary)
    usable = []
    for row in rows:
        if row["refused"] is None:
            bill = _bill(reader, row["schema"])
            if not bill.heavy and not bill.refused:
                given = str(row["name"]).startswith("given/")
                usable.append(_Row(bill, float(row["compile_ms"]), float(row["step_max_us"]), given))
    seen, kept = _split(usable)
    if len(seen) < _FEWEST:
        raise CostModelError("measurements", f"only {len(seen)} schemas compiled; at least {_FEWEST} make a fit")
    compile_ms = {"": old.base_compile_ms, **old.compile_ms}
    compile_ms = _refit([({"": 1.0, **row.bill.counts}, row.compile_ms) for row in seen], compile_ms, _FLOOR_MS)
    step_us = {"": old.base_step_us, **old.step_us}
    step_us = _refit([({"": 1.0, **row.bill.peaks}, row.step_us) for row in seen], step_us, _FLOOR_US)
    prices = replace(
        old,
        version=str(head["version"]),
        base_compile_ms=compile_ms.pop(""),
        base_step_us=step_us.pop(""),
        compile_ms=compile_ms,
        step_us=step_us,
    )
    return Fit(
        prices,
        vocabulary,
        prices.version,
        before=_quality(old, kept),
        after=_quality(prices, kept),
        trained=len(seen),
        tested=len(kept),
        of_given=kept[0].given,
        refused=sum(row["refused"] is not None for row in rows),
    )


def _split(rows: list[_Row]) -> tuple[list[_Row], list[_Row]]:
    """Measurements to fit on, and every fifth of the user's own schemas to test on; of all, where there are too few."""
    given = [row for row in rows if row.given]
    kept = given[_HELD_OUT - 1 :: _HELD_OUT] or rows[_HELD_OUT - 1 :: _HELD_OUT]
    out = set(map(id, kept))
    return [row for row in rows if id(row) not in out], kept


def updated(data: Mapping[str, Any], found: Fit) -> dict[str, Any]:
    """The plain data of a cost model with the new prices and vocabulary in place of the old, ready to be written."""
    prices = found.prices
    size = found.vocabulary.size
    old = data["backends"][prices.name]
    entry = {
        **old,
        "version": found.version,
        "measured_tokens": size,
        "base": {"compile_ms": _rounded(prices.base_compile_ms), "step_us": _rounded(prices.base_step_us)},
        "compile_ms": {name: _rounded(price) for name, price in prices.compile_ms.items()},
        "step_us": {name: _rounded(price) for name, price in prices.step_us.items()},
    }
    if "older" in old:
        # Of these the new prices hold what was so in the measured version, and the rest goes by the vocabulary's size.
        entry["older"] = [
            _scaled(change, size / old["measured_tokens"])
            for change in old["older"]
            if version_of(str(change["before"])) <= version_of(found.version)
        ]
    shares = {group_names(mask): _rounded(share) for mask, share in found.vocabulary.shares if share >= _LEAST_SHARE}
    # What was priced for another vocabulary keeps its `measured_tokens`: it is scaled to the new size when loaded.
    backends = {**data["backends"], prices.name: entry}
    return {**data, "vocabulary": {"size": size, "shares": shares}, "backends": backends}


def _scaled(change: Mapping[str, Any], factor: float) -> dict[str, Any]:
    kinds = {
        kind: {name: _rounded(price * factor) for name, price in change[kind].items()}
        for kind in ("compile_ms", "step_us")
        if kind in change
    }
    return {"before": change["before"], **kinds}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _bill(reader: GrammarReader, schema: object) -> Bill:
    return at_once(reader.read(Constraint(Grammar.json_schema, schema, "schema"), 1 << 30))


def _refit(rows: list[tuple[dict[str, float], float]], old: Mapping[str, float], floor: float) -> dict[str, float]:
    """Non-negative least squares by coordinate descent, each price held near the old one.

    The error of a row is (guess - cost) / sqrt(guess * cost), which is the same for twice as much and half as much: one
    that is only relative to the cost would rather be too low, the more so the noisier the machine is. The old prices
    are first scaled as a whole to the machine, so that what is not measured moves with the rest.
    """
    scale = _median(
        [cost / guess for units, cost in rows if (guess := _price(units, old)) > 0 and cost > floor] or [1.0]
    )
    prices = {name: price * scale for name, price in old.items()}
    users: dict[str, list[tuple[int, float]]] = {name: [] for name in prices}
    for index, (units, _) in enumerate(rows):
        for name, unit in units.items():
            if unit and name in users:
                users[name].append((index, unit))
    costs = [cost for _, cost in rows]
    guesses = [_price(units, prices) for units, _ in rows]
    for _ in range(_ROUNDS):
        weights = [_weight(cost, guess, floor) for cost, guess in zip(costs, guesses, strict=True)]
        for name, used in users.items():
            price, anchor = prices[name], old[name] * scale
            hold = _SHRINK / max(anchor, 1e-9) ** 2
            above, below = hold * anchor, hold
            for index, unit in used:
                above += weights[index] * unit * (costs[index] - guesses[index] + unit * price)
                below += weights[index] * unit * unit
            new = max(0.0, above / below)
            if new != price:
                for index, unit in used:
                    guesses[index] += unit * (new - price)
                prices[name] = new
    return prices


def _weight(cost: float, guess: float, floor: float) -> float:
    """A row that is far off counts less: it has a cause that no mechanism names. Below the floor all is noise."""
    both = max(cost, floor) * max(guess, floor)
    return 1.0 / (both * max(0.1, abs(cost - guess) / sqrt(both)))


def _price(units: Mapping[str, float], prices: Mapping[str, float]) -> float:
    return sum(prices[name] * quantity for name, quantity in units.items() if name in prices)


def _quality(prices: BackendPrices, rows: list[_Row]) -> Quality:
    compiles = [(prices.compile_of(row.bill), row.compile_ms) for row in rows]
    steps = [(prices.step_of(row.bill), row.step_us) for row in rows]
    ranks = _ranks([guess for guess, _ in compiles]), _ranks([cost for _, cost in compiles])
    return Quality(_error(compiles), _error(steps), _correlation(*ranks))


def _error(pairs: list[tuple[float, float]]) -> float:
    found = [(max(guess, 1e-3), max(cost, 1e-3)) for guess, cost in pairs]
    return _median([max(guess / cost, cost / guess) for guess, cost in found])


def _ranks(values: list[float]) -> list[float]:
    """Places in ascending order; equal values share the mean of theirs."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _correlation(one: list[float], other: list[float]) -> float:
    """Pearson's; 0 where one of the two does not vary."""
    mean_one, mean_other = sum(one) / len(one), sum(other) / len(other)
    both = sum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    spread = sum((a - mean_one) ** 2 for a in one) * sum((b - mean_other) ** 2 for b in other)
    return both / sqrt(spread) if spread else 0.0


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
