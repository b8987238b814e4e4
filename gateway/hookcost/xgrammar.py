"""A JSON schema as xgrammar's converter reads it, taken to the quantities that its compile and mask times follow.

The order in which keywords are looked at, and what is ignored beside them, follows `SchemaParser::Parse` and
`JSONSchemaConverter` of xgrammar 0.2.6 to 0.2.9 (`cpp/json_schema_converter.cc`), in strict mode, which SGLang and vLLM
use: a `$ref` hides its siblings, `enum` hides `type`, an `allOf` of several accepts anything, objects are closed unless
they say otherwise. Whatever it ignores costs nothing here. One bounded pass without recursion. Prices nothing.

What a look at the schema can't tell: whether a generation comes to a dear place. A pattern that costs 11 ms a mask in
an optional property counts in full, though a run that leaves the property out never pays; in the half of the corpus
that the prices were fitted on, 30 of 50 schemas with a mask predicted over 3 ms did not show it within 128 tokens for
this reason.
Nor what the automaton of a pattern has after it was made minimal: parts that take common characters merge, or multiply.
Of 149 schemas of that half that are mostly pattern, the compile times are between 0.5 and 2.0 times the predicted ones,
nine of ten between 0.6 and 1.6: that decides at a limit (500 ms), but not far from it.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import exp

import orjson

from gateway.hookcost.bill import Bill, Path
from gateway.hookcost.pattern import MALFORMED, PatternBill, read_pattern
from gateway.hookcost.regex import Regex
from gateway.hookcost.schemawalk import NAME, SchemaWalk
from gateway.hookcost.vocabulary import Vocabulary

_HOPS, _FEW, _MAX_STEPS = 8, 100, 2_000
"""References and wrappers that are looked through to see whether a property is a text: in objects of few properties;
and the steps of such references in one object. Beyond, one behind a wrapper is none, one behind a reference is."""
_MAX_TYPES = 16
UNROLLED = 128
"""Counted repetitions up to this many are unrolled into states at compile time; longer ones are counted at each step
(`kLargeRepeatThreshold`)."""

_REQUIRED_STATE = 0.65
"""A state at which a text may not end yet, against one at which it may."""
_FURTHER_STATES = 72
"""What a text that may go on beyond `UNROLLED` adds."""
_TOKEN_OVERLAP = 3

FORMATS = frozenset(
    (
        "email",
        "date",
        "time",
        "date-time",
        "duration",
        "ipv4",
        "ipv6",
        "hostname",
        "uuid",
        "uri",
        "uri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
    )
)


class XgrammarWalk(SchemaWalk):
    """A schema as xgrammar reads it."""

    __slots__ = ("_texts",)

    def __init__(self, schema: object, vocabulary: Vocabulary, bill: Bill) -> None:
        super().__init__(schema, vocabulary, bill)
        self._texts: set[tuple[int, int]] = set()

    def _read(self, schema: object, depth: int, path: Path | None, role: str | None) -> None:
        bill = self.bill
        if not isinstance(schema, dict):
            if schema is True:
                bill.counts["text"] = 1.0
            elif schema is False:
                bill.refuse("`false` accepts nothing", path)
            else:
                bill.refuse("a schema must be an object or a boolean", path, MALFORMED)
            return
        if "$ref" in schema:
            self._follow(schema["$ref"], depth, path)
        elif "const" in schema:
            bill.counts["literal_bytes"] = bill.counts.get("literal_bytes", 0.0) + len(orjson.dumps(schema["const"]))
        elif "enum" in schema:
            self._enum(schema["enum"], path)
        elif "anyOf" in schema:
            self._union(schema["anyOf"], "anyOf", depth, path)
        elif "oneOf" in schema:
            self._union(schema["oneOf"], "oneOf", depth, path)
        elif "allOf" in schema:
            branches = schema["allOf"]
            if not isinstance(branches, list):
                bill.refuse("`allOf` must be an array", path, MALFORMED)
            elif len(branches) == 1:
                self._stack.append((branches[0], depth + 1, Path(Path(path, "allOf"), 0), None))
            else:
                bill.counts["text"] = 1.0
        else:
            kind = schema.get("type", "string" if role == NAME else None)
            if not isinstance(kind, list):
                self._typed(schema, kind, depth, path)
            elif len(kind) > _MAX_TYPES:
                self._give_up(f"a `type` of more than {_MAX_TYPES} types")
            else:
                self._left -= len(kind)
                for one in kind:
                    self._typed(schema, one, depth, path)
                if not kind:
                    bill.counts["text"] = 1.0

    def _typed(self, schema: dict[str, object], kind: object, depth: int, path: Path | None) -> None:
        bill = self.bill
        if kind == "string":
            self._string(schema, path)
        elif kind == "object" or (
            kind is None
            and ("properties" in schema or "additionalProperties" in schema or "unevaluatedProperties" in schema)
        ):
            self._object(schema, depth, path)
        elif kind == "array" or (
            kind is None and ("items" in schema or "prefixItems" in schema or "unevaluatedItems" in schema)
        ):
            self._array(schema, depth, path)
        elif kind in ("integer", "number"):
            name = "bounded_numbers" if self._range(schema, path) else "numbers"
            bill.counts[name] = bill.counts.get(name, 0.0) + 1.0
        elif kind is None:
            bill.counts["text"] = 1.0
        elif kind not in ("boolean", "null"):
            standard = self._standard(kind, path)
            if standard is not None:
                self._typed(schema, standard, depth, path)

    def _enum(self, values: object, path: Path | None) -> None:
        if not isinstance(values, list) or not values:
            self.bill.refuse("`enum` must be an array with at least one value", path, MALFORMED)
            return
        self._left -= len(values) // 8
        size = len(orjson.dumps(values))
        counts, peaks = self.bill.counts, self.bill.peaks
        counts["enum_values"] = counts.get("enum_values", 0.0) + len(values)
        peaks["enum_values"] = max(peaks.get("enum_values", 0.0), len(values))
        if size > 64:
            self.bill.add("enum_bytes", size, path)
        else:
            counts["enum_bytes"] = counts.get("enum_bytes", 0.0) + size

    def _union(self, options: object, keyword: str, depth: int, path: Path | None) -> None:
        pushed = self._push_all(options, keyword, depth, path)
        if pushed is not None and len(pushed) > 1:
            self.bill.add("union_options", len(pushed), path)

    def _string(self, schema: Mapping[str, object], path: Path | None) -> None:
        form = schema.get("format")
        if isinstance(form, str) and form in FORMATS:
            self.bill.add(f"format_{form}", 1.0, path)
        elif "pattern" in schema:
            self._pattern(schema["pattern"], pattern_bill, path)
        elif "minLength" in schema or "maxLength" in schema:
            low, high = schema.get("minLength", 0), schema.get("maxLength", -1)
            if type(low) is not int or type(high) is not int:
                self.bill.refuse("`minLength` and `maxLength` must be integers", path, MALFORMED)
            elif high != -1 and low > high:
                self.bill.refuse("`minLength` is above `maxLength`", path)
            else:
                self._bounded_text(low, high, path)
        else:
            self.bill.counts["text"] = 1.0

    def _bounded_text(self, low: int, high: int, path: Path | None) -> None:
        """Up to 0.2.8 a bound is unrolled into states, up to `UNROLLED` of each kind and once for all equal ones; where
        the upper end is among them, a mask tries each token against it."""
        self.bill.add("bounded_text", 1.0, path)
        if 0 <= high <= UNROLLED:
            self.bill.add("bounded_text_end", 1.0, path)
        if (low, high) not in self._texts:
            self._texts.add((low, high))
            beyond = _FURTHER_STATES if low <= UNROLLED < high else 0
            optional = max(0, min(high, UNROLLED + beyond) - low - _TOKEN_OVERLAP)
            self.bill.add("bounded_text_states", _REQUIRED_STATE * min(low, UNROLLED) + optional, path)

    def _array(self, schema: Mapping[str, object], depth: int, path: Path | None) -> None:
        bill = self.bill
        prefix = self._push_all(schema.get("prefixItems", []), "prefixItems", depth, path)
        if prefix is None:
            return
        keyword = "items" if "items" in schema else "unevaluatedItems"
        items = schema.get(keyword)
        if items is not None and items is not False:
            if not isinstance(items, dict | bool):
                bill.refuse(f"`{keyword}` must be a schema", path, MALFORMED)
                return
            self._stack.append((items, depth + 1, Path(path, keyword), None))
        low, high = self._bounds(schema, "minItems", "maxItems", path)
        if high != -1 and high < len(prefix):
            bill.refuse("`maxItems` is below the number of `prefixItems`", path)
        elif (items is None or items is False) and low > len(prefix):
            bill.refuse("`minItems` asks for more than `prefixItems` allows", path)
        elif low > 1 or high > 1:
            bill.add("counted_items", float(min(max(low, high), UNROLLED)), path)
        bill.counts["arrays"] = bill.counts.get("arrays", 0.0) + 1.0

    def _object(self, schema: Mapping[str, object], depth: int, path: Path | None) -> None:
        bill, stack = self.bill, self._stack
        members = self._members(schema, depth, path)
        if members is None:
            return
        properties, patterns, needed = members
        names = schema.get("propertyNames")
        if names is not None:
            if not isinstance(names, dict):
                bill.refuse("`propertyNames` must be an object", path, MALFORMED)
                return
            stack.append((names, depth + 1, Path(path, "propertyNames"), NAME))
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        additional = schema.get(keyword, False)
        is_open = additional is not False
        if is_open:
            stack.append((additional, depth + 1, Path(path, keyword), None))
            if not names and not patterns:
                bill.counts["text"] = 1.0
        if properties:
            self._named(properties, needed, is_open and not patterns and names is None, path)
        low, high = self._bounds(schema, "minProperties", "maxProperties", path)
        if high != -1 and len(needed) > high:
            bill.refuse("`maxProperties` is below the number of required properties", path)
        elif not is_open and not patterns and names is None and low > len(properties):
            bill.refuse("`minProperties` asks for more than `properties` allows", path)
        elif properties and (low or high != -1):
            bill.add("counted_properties", float(_counting_rules(len(properties), len(needed), low, high)), path)

    def _named(
        self,
        properties: Mapping[str, object],
        needed: set[str],
        excludes_names: bool,
        path: Path | None,
    ) -> None:
        """Named properties. What may follow each is a run of optional ones up to the next required; behind a text the
        run is dear, because every token with a closing quote must be tried against all of it."""
        bill = self.bill
        following = after_text = after_other = longest = 0
        hops = _HOPS if len(properties) <= _FEW else 1
        steps = self._references.work + _MAX_STEPS
        for name in reversed(list(properties)):
            if self._is_text(properties[name], hops, steps):
                after_text += following
                if following > longest:
                    longest = following
            else:
                after_other += following
            following = 1 if name in needed else following + 1
        counts = bill.counts
        counts["properties"] = counts.get("properties", 0.0) + len(properties)
        counts["next_after_other"] = counts.get("next_after_other", 0.0) + after_other + following
        if after_text > 32:
            bill.add("next_after_text", after_text, path)
        else:
            counts["next_after_text"] = counts.get("next_after_text", 0.0) + after_text
        if longest > 8:
            bill.add("text_before_optionals", float(min(longest, UNROLLED) ** 2), path)
        if excludes_names:
            counts["open_properties"] = counts.get("open_properties", 0.0) + len(properties)
            nodes = trie_nodes(properties)
            # Equal objects written out twice are compiled twice; only those behind one `$ref` are shared.
            bill.add("open_object_names", nodes, path)

    def _is_text(self, schema: object, hops: int, steps: int) -> bool:
        """Whether a value may be a string, as far as a look through a few references and wrappers shows.

        steps: `References.work` beyond which no more references are followed.
        """
        for _ in range(hops + 1):
            if not isinstance(schema, dict):
                return schema is True
            if "$ref" in schema:
                if self._references.work > steps:
                    return True
                schema = self._resolve(schema["$ref"]) if isinstance(schema["$ref"], str) else None
                continue
            if "const" in schema or "enum" in schema:
                return False
            options = schema.get("anyOf", schema.get("oneOf", schema.get("allOf")))
            if isinstance(options, list):
                if len(options) == 1:
                    schema = options[0]
                    continue
                return any(isinstance(option, dict) and option.get("type") == "string" for option in options[:_HOPS])
            kind = schema.get("type")
            if kind is None:
                return "properties" not in schema and "items" not in schema
            return kind == "string" or (isinstance(kind, list) and "string" in kind)
        return False


def trie_nodes(names: Mapping[str, object]) -> int:
    """Nodes of the trie of the names in UTF-8, shared prefixes counted once."""
    nodes, before = 1, b""
    for name in sorted([name.encode("utf-8", "surrogatepass") for name in names]):
        nodes += len(name) - _common(name, before)
        before = name
    return nodes


def _common(one: bytes, other: bytes) -> int:
    """Length of the common prefix, taken as numbers: their difference begins where the names part."""
    length = min(len(one), len(other))
    apart = int.from_bytes(one[:length]) ^ int.from_bytes(other[:length])
    return length - (apart.bit_length() + 7) // 8


def _counting_rules(properties: int, required: int, low: int, high: int) -> int:
    """Rules that count named properties: one for each place and each number of properties that may stand before it.

    In objects of many properties each such rule has many successors and counts more.
    """
    most = properties if high == -1 else min(high, properties)
    rules = 0
    for index in range(properties):
        least = max(1, low - (properties - 1 - index), min(required, index + 1) if required == properties else 1)
        rules += max(0, min(index + 1, most) - least + 1)
    return rules * max(1, properties // 25)


@lru_cache(maxsize=4096)
def pattern_bill(source: str, vocabulary: Vocabulary) -> PatternBill:
    """The bill of one pattern."""
    return read_pattern(source, lambda regex: _quantities(regex, vocabulary), _refuses)


def _refuses(regex: Regex) -> str | None:
    if regex.backreference:
        return "has a backreference"
    if regex.unicode_property:
        return "has a Unicode property class"
    if regex.boundary and not regex.lookaround:
        return "has a word boundary"
    return None


_PLUS_STATES = 0.7
"""What the state before the loop of a `+` adds to the loop's own."""
_CFG_FACTOR = 2.0
"""A pattern that the automaton builder does not take (beyond ASCII, lookaround) becomes context-free rules instead."""
_MOST_STATES = 1_000_000
_TOKEN_CHARS = 24
_TOKENS_UP_TO = tuple(1.0 - exp(-((length / 6.5) ** 1.7)) for length in range(_TOKEN_CHARS))
"""The share of word-like tokens of at most so many characters."""
_TOKENS_BEFORE = tuple(sum(_TOKENS_UP_TO[:length]) for length in range(_TOKEN_CHARS + 1))


def _room(characters: float) -> float:
    """Of so many states in a row, how many a token of usual length does not overrun."""
    if characters <= _TOKEN_CHARS:
        return _TOKENS_BEFORE[int(characters)]
    return _TOKENS_BEFORE[_TOKEN_CHARS] + characters - _TOKEN_CHARS


def _quantities(regex: Regex, vocabulary: Vocabulary) -> list[tuple[str, float]]:
    """`pattern_states`: states of the unrolled automaton, each weighted by the share of tokens that stay in its class.
    `counted_states`: those of the repetitions that are not unrolled, but were before 0.2.6.

    A state whose tokens run into a fence after few characters lets only short ones through.
    """
    states = counted = unrolled = reach = 0.0
    following = None
    for position in reversed(regex.positions):
        ahead = 0.0 if position.fenced else reach
        share = vocabulary.share_before(position.chars, None if position.fenced else following)
        if position.loop:
            states += share * position.copies * (1.0 + _PLUS_STATES * position.plus)
            reach = float("inf")
        elif position.repeat > UNROLLED:
            counted = max(counted, share)
            unrolled += share * min(position.copies, _MOST_STATES)
            states += share
            reach = float("inf")
        elif ahead == float("inf"):
            states += share * position.copies
        else:
            states += share * (_room(position.copies + ahead) - _room(ahead))
            reach = position.copies + ahead
        if position.loop and position.repeat > UNROLLED:
            counted = max(counted, share)
        following = position.chars
    if regex.non_ascii or regex.lookaround or any(0.001 < place.chars.beyond < 1.0 for place in regex.positions):
        states *= _CFG_FACTOR
    found = [("pattern_states", states), ("pattern_literals", float(min(regex.literals, 100_000)))]
    if counted:
        found.append(("counted_class", counted))
    if unrolled:
        found.append(("counted_states", unrolled))
    return found
