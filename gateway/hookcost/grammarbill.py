"""Any grammar to its bill on one backend: schemas by the backend's own walk, the other kinds by theirs.

Owns which reading belongs to which kind of grammar and backend, and the quantities of raw regex, EBNF, choices, tools
and structural tags. Prices nothing.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import cast

from gateway.hookcost.bill import Bill, Charge, Path, steps_to
from gateway.hookcost.constraint import Constraint, bound_of
from gateway.hookcost.ebnf import Ebnf, EbnfBoundError, EbnfError, read_ebnf
from gateway.hookcost.features import Grammar
from gateway.hookcost.llguidance import LlguidanceWalk
from gateway.hookcost.outlines import OutlinesWalk
from gateway.hookcost.pattern import LOOKAROUND, MALFORMED_GRAMMAR, UNCOMPILABLE
from gateway.hookcost.regex import MAX_WORK, Regex, RegexBoundError, RegexError, read_regex
from gateway.hookcost.schemawalk import SchemaWalk
from gateway.hookcost.tag import Embedded, embedded
from gateway.hookcost.vocabulary import Vocabulary
from gateway.hookcost.xgrammar import UNROLLED, XgrammarWalk

WALKS: dict[str, type[SchemaWalk]] = {
    "xgrammar": XgrammarWalk,
    "llguidance": LlguidanceWalk,
    "outlines": OutlinesWalk,
}
"""The reading of a schema, by grammar backend; SGLang and vLLM use these names, vLLM also `guidance`."""
_PART_WORK = 10
"""Units of a walk that a tool or a part of a tag takes beside its nodes."""
_MOST_SOURCE_WORK = 1_000
_HEAVY_COPIES = 1_000_000
_MOST_UNROLLED = 200
"""States of one counted repetition, whatever it counts to."""


@dataclass(frozen=True, slots=True)
class GrammarReader:
    """How one backend with one vocabulary reads grammars.

    places: bills say where in the grammar each quantity stands.
    """

    backend: str
    vocabulary: Vocabulary
    places: bool = False

    def read(self, constraint: Constraint, slice_work: int) -> Generator[None, None, Bill]:
        """The bill of a grammar; yields after every `slice_work` units of a walk, to let other work go between."""
        kind, value = constraint.kind, constraint.value
        if kind is Grammar.json_schema and not isinstance(value, str):
            return (yield from self._schema(value, slice_work))
        if kind is Grammar.json_object:
            return (yield from self._schema(True, slice_work))
        bill = self._bill()
        bound = bound_of(value) if isinstance(value, str) else None
        if bound is not None:
            bill.heavy = f"`{constraint.param}` is {bound}"
        elif kind is Grammar.regex and isinstance(value, str):
            _raw_regex(value, bill, self.vocabulary, None)
        elif kind is Grammar.ebnf and isinstance(value, str):
            _raw_ebnf(value, bill, None)
        elif kind is Grammar.choice and isinstance(value, list):
            _choices(value, bill)
        elif kind is Grammar.tools and isinstance(value, list):
            yield from self._tools(value, bill, slice_work)
        elif kind is Grammar.structural_tag:
            yield from self._tag((yield from embedded(value)), bill, slice_work)
        return bill

    def _bill(self) -> Bill:
        return Bill(charges=[] if self.places else None)

    def _schema(self, schema: object, slice_work: int) -> Generator[None, None, Bill]:
        walk = WALKS[self.backend](schema, self.vocabulary, self._bill())
        while not walk.step(slice_work):
            yield
        return walk.bill

    def _tools(self, schemas: list[object], bill: Bill, slice_work: int) -> Generator[None, None, None]:
        """The sum over all tools: one of them is chosen, but all are compiled."""
        left = slice_work
        for index, schema in enumerate(schemas):
            part = yield from self._schema(schema, slice_work)
            _merge(bill, part, ("tools", index))
            left -= part.nodes + _PART_WORK
            if left <= 0:
                left = slice_work
                yield
            properties = schema.get("properties") if isinstance(schema, dict) else None
            bill.add("tool_properties", float(len(properties)) if isinstance(properties, dict) else 0.0, None)
        if len(schemas) > 1:
            bill.add("union_options", float(len(schemas)), None)

    def _tag(self, parts: Iterable[Embedded] | str, bill: Bill, slice_work: int) -> Generator[None, None, None]:
        if isinstance(parts, str):
            bill.heavy = parts
            return
        left = slice_work
        for index, part in enumerate(parts):
            left -= _PART_WORK
            if part.kind is Grammar.json_schema:
                found = yield from self._schema(part.value, slice_work)
                _merge(bill, found, ("parts", index))
                left -= found.nodes
            else:
                # How much a source takes to read shows only afterwards; there is at most about one step a character.
                source = str(part.value)
                left -= min(len(source), _MOST_SOURCE_WORK)
                if left <= 0:
                    left = slice_work
                    yield
                if part.kind is Grammar.regex:
                    left -= _raw_regex(source, bill, self.vocabulary, Path(None, index))
                elif part.kind is Grammar.ebnf:
                    _raw_ebnf(source, bill, Path(None, index))
            if left <= 0:
                left = slice_work
                yield
        bill.counts["text"] = 1.0


def _merge(bill: Bill, part: Bill, prefix: tuple[str, int]) -> None:
    """Adds a part that is compiled with the rest; only one part is open at a time."""
    for mechanism, quantity in part.counts.items():
        once = mechanism == "text"
        bill.counts[mechanism] = quantity if once else bill.counts.get(mechanism, 0.0) + quantity
    for mechanism, quantity in part.peaks.items():
        bill.peaks[mechanism] = max(bill.peaks.get(mechanism, 0.0), quantity)
    if bill.charges is not None and part.charges is not None:
        under = Path(Path(None, prefix[0]), prefix[1])
        bill.charges.extend(Charge(name, quantity, _below(under, path)) for name, quantity, path in part.charges)
    bill.refused = bill.refused or part.refused
    bill.heavy = bill.heavy or part.heavy
    bill.nodes += part.nodes
    bill.depth = max(bill.depth, part.depth)


def _below(parent: Path, path: Path | None) -> Path:
    for step in steps_to(path):
        parent = Path(parent, step)
    return parent


def _raw_regex(source: str, bill: Bill, vocabulary: Vocabulary, path: Path | None) -> int:
    """A regex that is the whole grammar: xgrammar turns it into context-free rules, where ambiguity costs each step.

    Returns the steps that reading it took.
    """
    try:
        regex = read_regex(source)
    except RegexBoundError as error:
        bill.heavy = str(error)
        return MAX_WORK
    except RegexError as error:
        bill.refuse(f"{error} (character {error.position + 1})", path, UNCOMPILABLE)
        return min(len(source), MAX_WORK)
    if regex.backreference or regex.lookaround:
        bill.refuse("lookaround and backreferences are not supported", path, LOOKAROUND)
    if regex.states > _HEAVY_COPIES:
        bill.heavy = f"a regex whose counted repetitions multiply to more than {_HEAVY_COPIES:,}"
    bill.add("raw_regex", 1.0, path)
    for mechanism, quantity in _raw_quantities(regex, vocabulary).items():
        if quantity:
            bill.add(mechanism, quantity, path)
    return regex.work


def _raw_quantities(regex: Regex, vocabulary: Vocabulary) -> dict[str, float]:
    """What crosses from one round of a repetition to the next is tried token by token: behind a fence few tokens are,
    without one all that stay in the class. Only a count that ends the text is unrolled."""
    states = counted = at_end = nested = ambiguous = wide = loops = 0.0
    for place in regex.positions:
        share = vocabulary.share(place.chars)
        crossing = share if place.fence is None else vocabulary.share(place.chars | place.fence) - share
        if place.loop:
            states += share
            wide = max(wide, share)
            loops = max(loops, float(min(place.copies, _HEAVY_COPIES) if place.copies > 1 else 0))
        elif place.fence is not None or place.copies == 1:
            states += share + crossing * (min(place.repeat, _MOST_UNROLLED) if place.repeat > 1 else 0)
        else:
            states += share * min(place.copies, _MOST_UNROLLED)
            at_end = max(at_end, share)
        if not place.loop and place.copies > place.repeat:
            nested = max(nested, crossing)
        if place.repeat > 1 and not place.loop:
            counted = max(counted, share)
        if regex.ambiguous_repeats and (place.loop or place.copies > 1):
            ambiguous += share
    return {
        "raw_regex_states": states,
        "raw_counted": counted,
        "raw_counted_end": at_end,
        "nested_counts": nested,
        "wide_loop": wide,
        "counted_loops": loops,
        "ambiguous_share": ambiguous,
        "ambiguous_loops": float(regex.ambiguous_repeats),
        "adjacent_loops": float(regex.adjacent_loops),
    }


def _raw_ebnf(source: str, bill: Bill, path: Path | None) -> None:
    try:
        ebnf = read_ebnf(source)
    except EbnfBoundError as error:
        bill.heavy = str(error)
        return
    except EbnfError as error:
        bill.refuse(str(error), path, MALFORMED_GRAMMAR)
        return
    for mechanism, quantity in _ebnf_quantities(ebnf).items():
        if quantity:
            bill.add(mechanism, quantity, path)


def _ebnf_quantities(ebnf: Ebnf) -> dict[str, float]:
    return {
        "ebnf_rules": float(ebnf.rules),
        "ebnf_free": float(not ebnf.finite),
        "ebnf_nested_loops": float(ebnf.nested_loops),
        "ebnf_ambiguous": float(ebnf.ambiguous),
        "ebnf_counted": float(ebnf.largest_count if ebnf.largest_count > UNROLLED else 0),
        "ebnf_optionals": float(ebnf.optionals if ebnf.optionals > 8 else 0),
    }


def _choices(values: list[object], bill: Bill) -> None:
    size = sum(map(len, cast(list[str], values))) + 2 * len(values)
    bill.add("enum_bytes", float(size), None)
    bill.add("literal_bytes", float(size), None)
    bill.peaks["enum_values"] = bill.peaks["literal_values"] = float(len(values))
