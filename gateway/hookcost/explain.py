"""Why a request costs what it costs: per feature, and per place of its grammar, with what would make it cheaper.

For people, not for the hot path: reads the grammar again with its places kept. Owns the advice.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from heapq import nsmallest

from gateway.hookcost.bill import Bill, Path, pointer
from gateway.hookcost.body import parse, takes_long
from gateway.hookcost.classification import Refusal
from gateway.hookcost.features import Api
from gateway.hookcost.grammarbill import GrammarReader
from gateway.hookcost.hooks import hook_charges
from gateway.hookcost.paths import api_of
from gateway.hookcost.prices import BackendPrices, CostModel
from gateway.hookcost.reading import Reading, read_body
from gateway.hookcost.skim import skim
from gateway.hookcost.values import MalformedError

MAX_PLACES = 3

ADVICE = {
    "open_object_names": "set `additionalProperties: false`, or leave it out: in strict mode objects are closed anyway",
    "counted_class": "use a count of at most 128, or `maxLength`, which is cheap from xgrammar 0.2.9 on",
    "pattern_states": "use a smaller count, a narrower character class, or `maxLength` in place of the pattern",
    "pattern_width": "a pattern over a narrow class, or none, keeps the mask cheap",
    "patterns": "a free string, or an `enum`, is cheaper than a pattern",
    "counted_loops": "take the unbounded repetition out of the counted one",
    "text_before_optionals": "make properties required, or split the object: few optional ones should follow a string",
    "next_after_text": "make properties required: a run of optional ones is compiled once for each place",
    "next_after_other": "make properties required: a run of optional ones is compiled once for each place",
    "optional_properties": "make properties required",
    "optional_combinations": "make properties required: optional ones are spelled out in all combinations",
    "counted_properties": "leave out `minProperties` and `maxProperties`, and check the count afterwards",
    "spelled_out_properties": "leave out `minProperties` and `maxProperties`, and check the count afterwards",
    "enum_bytes": "use fewer or shorter values, or a free string that is checked afterwards",
    "enum_values": "use fewer values, or a free string that is checked afterwards",
    "literal_bytes": "use fewer or shorter values",
    "bounded_text": "leave out `minLength` and `maxLength` where they are only documentation",
    "bounded_text_states": "leave out `minLength` and `maxLength`, which xgrammar unrolls before 0.2.9, or update it",
    "bounded_text_end": "leave out `minLength` and `maxLength`, which xgrammar unrolls before 0.2.9, or update it",
    "counted_states": "use a smaller count, or a free string that is checked afterwards",
    "counted_items": "leave out `minItems` and `maxItems` where they are only documentation",
    "union_options": "give the options different types, or one object with a discriminating `enum`",
    "merged_properties": "put the common properties into the options, not beside the union",
    "open_name_bytes": "set `additionalProperties: false`",
    "tool_properties": "attach fewer tools, or let the model choose (`tool_choice: auto`)",
    "ambiguous_share": "write the repetition without another inside it, such as `[a-z ]+` for `([a-z]+ ?)+`",
    "ambiguous_loops": "write the repetition without another inside it",
    "adjacent_loops": "put a character between repetitions that take the same characters",
    "nested_counts": "write one counted repetition, not one inside another",
    "raw_counted": "use a smaller count or a narrower character class",
    "raw_counted_end": "let a character follow the count that it does not take, such as a newline",
    "raw_regex_states": "use a smaller count or a narrower character class",
    "ebnf_free": "use a JSON schema, or a regex: a free grammar may be ambiguous at each token",
    "ebnf_nested_loops": "let each repetition take what no other one can",
    "ebnf_ambiguous": "write left- or right-recursive rules that name themselves once",
    "ebnf_optionals": "nest optional parts instead of a chain of them",
    "ebnf_counted": "use a smaller count",
    "recursion": "unroll the recursion to the depth that is needed",
    "nodes": "ask for fewer fields",
}
"""What makes each mechanism cheaper."""
_FORMAT_ADVICE = "a free string that is checked afterwards is cheaper than this `format`"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one mechanism or feature adds, all its places and sequences together.

    hook:     the hook kind.
    name:     the mechanism of a grammar, or the feature.
    quantity: units of the mechanism; 1 for a feature.
    """

    hook: str
    name: str
    quantity: float
    compile_ms: float
    step_us: float


@dataclass(frozen=True, slots=True)
class Place:
    """A place of the grammar that costs: the field of the body, the JSON pointer inside, and what would be cheaper."""

    param: str
    pointer: str
    mechanism: str
    compile_ms: float
    step_us: float
    advice: str


@dataclass(frozen=True, slots=True)
class CostExplanation:
    """Contributions, dearest first, and the places of the grammar that cost most, on one backend in one version."""

    backend: str
    version: str
    contributions: tuple[Contribution, ...]
    places: tuple[Place, ...]


ExplanationTurns = Generator[None, None, CostExplanation]
"""An explanation in the making: each `next()` is one turn of about a millisecond."""


def explain_in_turns(
    model: CostModel, path: str, body: bytes, backend: str, version: str | None = None
) -> ExplanationTurns:
    """Explains the prediction for one request on one backend; a refused body has nothing to explain.

    In turns, for a caller that has an event loop to share.

    Raises:
        CostModelError: no such backend.
    """
    prices = model.backend(backend, version)
    reading = yield from _read_body(api_of(path), body)
    if reading is None:
        return CostExplanation(prices.name, prices.version, (), ())
    n = max(1, reading.features.n)
    contributions = [
        Contribution(charge.hook, charge.feature, 1.0, 0.0, charge.step_us)
        for charge in hook_charges(reading.features, model.hooks)
    ]
    places: list[Place] = []
    reader = GrammarReader(prices.name, model.vocabulary, places=True)
    bills: list[Bill] = []
    for constraint in reading.constraints:
        bill = yield from reader.read(constraint, _TURN_WORK)
        bills.append(bill)
        places.extend((yield from _places(bill, prices, constraint.param, n)))
    dearest_step = max([prices.step_of(bill) for bill in bills], default=0.0)
    for bill in bills:
        # All are compiled, but one constrains each sequence: the dearest stands for all.
        sequences = n if prices.step_of(bill) == dearest_step else 0
        dearest_step = -1.0 if sequences else dearest_step
        base_us = sequences * prices.base_step_us
        contributions.append(Contribution("grammar", "base", 1.0, prices.base_compile_ms, base_us))
        contributions.extend(_contributions(bill, prices, sequences))
    contributions.sort(key=lambda each: (-each.step_us, -each.compile_ms))
    dearest = nsmallest(MAX_PLACES, places, key=_weight)
    return CostExplanation(prices.name, prices.version, tuple(contributions), tuple(dearest))


def _read_body(api: Api, body: bytes) -> Generator[None, None, Reading | None]:
    """What the body asks for, or None where it is refused or asks for nothing that costs."""
    data: dict[str, object] | Refusal
    if api is Api.other:
        return None
    if takes_long(body):
        skimmed = yield from skim(body, prompt_text=api is Api.generate)
        data = skimmed if isinstance(skimmed, Refusal) else skimmed.data
        yield
    else:
        data = parse(body)
    if isinstance(data, Refusal):
        return None
    try:
        return (yield from read_body(api, data, len(body)))
    except MalformedError:
        return None


def _contributions(bill: Bill, prices: BackendPrices, n: int) -> Iterable[Contribution]:
    for mechanism in sorted(bill.counts.keys() | bill.peaks.keys()):
        quantity = bill.counts.get(mechanism, bill.peaks.get(mechanism, 0.0))
        compile_ms = prices.compile_ms.get(mechanism, 0.0) * bill.counts.get(mechanism, 0.0)
        step_us = n * prices.step_us.get(mechanism, 0.0) * bill.peaks.get(mechanism, 0.0)
        if compile_ms or step_us:
            yield Contribution("grammar", mechanism, quantity, compile_ms, step_us)


def _places(bill: Bill, prices: BackendPrices, param: str, n: int) -> Generator[None, None, list[Place]]:
    """The places of a bill with all that they cost, named after the mechanism that costs most there."""
    by_path: dict[Path | None, list[tuple[str, float, float]]] = {}
    for index, (mechanism, quantity, path) in enumerate(bill.charges or ()):
        compile_ms = prices.compile_ms.get(mechanism, 0.0) * quantity
        step_us = n * prices.step_us.get(mechanism, 0.0) * quantity
        if compile_ms or step_us:
            by_path.setdefault(path, []).append((mechanism, compile_ms, step_us))
        if index % _TURN_CHARGES == _TURN_CHARGES - 1:
            yield
    found: list[Place] = []
    for index, (path, parts) in enumerate(by_path.items()):
        mechanism = max(parts, key=lambda part: part[1] * _MS_AS_STEP_US + part[2])[0]
        advice = _FORMAT_ADVICE if mechanism.startswith("format_") else ADVICE.get(mechanism, "")
        compile_ms = sum(part[1] for part in parts)
        place = Place(param, pointer(path), mechanism, compile_ms, sum(part[2] for part in parts), advice)
        found = nsmallest(MAX_PLACES, [*found, place], key=_weight)
        if index % _TURN_CHARGES == _TURN_CHARGES - 1:
            yield
    return found


_TURN_WORK = 250
"""Units of a schema walk in one turn."""
_TURN_CHARGES = 250
_MS_AS_STEP_US = 2.0
"""A compile of 500 ms weighs like a step of 1 ms, the usual limits of both."""


def _weight(place: Place) -> float:
    return -(place.compile_ms * _MS_AS_STEP_US + place.step_us)
