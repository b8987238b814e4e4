"""A JSON schema as llguidance's compiler reads it: what it refuses, and the quantities that its times follow.

Follows `parser/src/json/schema.rs` and `compiler.rs` of llguidance 1.8 and 1.9: keywords that it knows of but does not
implement are refused, objects are open unless closed, keywords beside a union are merged into each of its options. The
grammar becomes lexemes (regular expressions run by derivatives) under a small Earley grammar, so that neither open
objects nor counted repetitions explode; what costs is the number of lexemes that are possible at once. Prices nothing.

What a look at the schema can't tell: how long the dearest mask of one generation takes. It comes where a lexeme that
no prepared slice of the vocabulary covers meets a state not seen before, which hangs on the text: of schemas with a
pattern one in four shows a mask in the costliest 5 %, of those without pattern, bound or format hardly any. So the
price of a step is the mean of the worst masks seen, and the observed cost corrects it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from gateway.hookcost.bill import Bill, Path
from gateway.hookcost.oneof import excluding, is_plain
from gateway.hookcost.pattern import MALFORMED, PatternBill, read_pattern
from gateway.hookcost.reference import MISSING, localised
from gateway.hookcost.regex import Regex
from gateway.hookcost.schemawalk import REQUIRED, SchemaWalk
from gateway.hookcost.vocabulary import Vocabulary

FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)
_DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
_REFUSED_SINCE = {
    "dependencies": 0,
    "not": 0,
    "uniqueItems": 0,
    "contains": 1,
    "propertyNames": 1,
    "if": 2,
    "then": 2,
    "else": 2,
    "$recursiveAnchor": 3,
    "$recursiveRef": 3,
    "dependentRequired": 3,
    "dependentSchemas": 3,
    "maxContains": 3,
    "minContains": 3,
    "unevaluatedItems": 3,
    "unevaluatedProperties": 3,
    "$dynamicAnchor": 4,
    "$dynamicRef": 4,
}
"""Keywords of JSON Schema that are not implemented, with the draft (index into `_DRAFTS`) that brought them."""
_OBJECT_KEYWORDS = frozenset(("properties", "additionalProperties", "patternProperties", "required"))
_URI = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")
_TYPES = ("null", "boolean", "number", "string", "array", "object")
_APPLICATORS = ("$ref", "const", "enum", "allOf", "anyOf", "oneOf")
_MOST = 1_000_000
_MAX_LITERAL_BYTES = 150_000
_LONG = 4
"""A counted repetition of so many lets tokens of usual length through."""
_DOCUMENT_WORK = 12
"""Of a reference that is none into the schema itself: names of documents are joined, which takes long."""
_COMPARISONS = 8
"""Parts of a `oneOf` that are told apart in one unit of the walk's work."""


class LlguidanceWalk(SchemaWalk):
    """A schema as llguidance reads it."""

    __slots__ = ("_refused",)

    def __init__(self, schema: object, vocabulary: Vocabulary, bill: Bill) -> None:
        super().__init__(schema, vocabulary, bill)
        self._refused = frozenset(keyword for keyword, since in _REFUSED_SINCE.items() if since <= _draft_of(schema))

    def _read(self, schema: object, depth: int, path: Path | None, role: str | None) -> None:
        bill = self.bill
        if not isinstance(schema, dict):
            if schema is True:
                bill.counts["anything"] = bill.counts.get("anything", 0.0) + 1.0
            elif schema is not False:
                bill.refuse("a schema must be an object or a boolean", path, MALFORMED)
            elif path is None or role == REQUIRED:
                bill.refuse("`false` accepts nothing", path)
            return
        if is_plain(schema):
            bill.counts["anything"] = bill.counts.get("anything", 0.0) + 1.0
            return
        unknown = self._refused.intersection(schema)
        if unknown:
            bill.refuse(f"`{min(unknown)}` is not implemented", path)
        applied = False
        for keyword in _APPLICATORS:
            if keyword in schema:
                applied = True
                self._apply(schema, keyword, depth, path)
        kinds = self._kinds(schema, applied, path)
        for kind in kinds:
            self._typed(schema, kind, depth, path, len(kinds) > 1)

    def _kinds(self, schema: Mapping[str, object], applied: bool, path: Path | None) -> tuple[str, ...]:
        """The types that a node's own keywords are compiled for: all six where none is named."""
        kind = schema.get("type")
        if kind is None:
            if applied and not _OBJECT_KEYWORDS.intersection(schema) and "items" not in schema:
                return ()
            return _TYPES
        if isinstance(kind, str):
            kind = [kind]
        if not isinstance(kind, list) or not all(isinstance(one, str) for one in kind):
            self.bill.refuse("`type` must be a string or an array of strings", path, MALFORMED)
            return ()
        return tuple(kind)

    def _apply(self, schema: Mapping[str, object], keyword: str, depth: int, path: Path | None) -> None:
        bill, value = self.bill, schema[keyword]
        if keyword == "$ref":
            self._reference(value, depth, path)
        elif keyword == "const":
            self._literals([value], path)
        elif keyword == "enum":
            if isinstance(value, list):
                self._literals(value, path)
            else:
                bill.refuse("`enum` must be an array", path, MALFORMED)
        else:
            options = self._push_all(value, keyword, depth, path)
            if options is not None and keyword != "allOf":
                self._union(schema, keyword, options, path)

    def _union(self, schema: Mapping[str, object], keyword: str, options: list[object], path: Path | None) -> None:
        bill = self.bill
        if len(options) > 1:
            bill.add("union_options", len(options), path)
            siblings = len(schema) > 1 and not is_plain({name: None for name in schema if name != keyword})
            if keyword == "oneOf":
                apart, work = excluding(options, self._references, siblings)
                self._left -= work // _COMPARISONS
                if not apart:
                    bill.refuse("`oneOf` with options that may overlap", path)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            bill.add("merged_properties", float(len(options) * len(properties)), path)

    def _reference(self, uri: object, depth: int, path: Path | None) -> None:
        if isinstance(uri, str) and _URI.fullmatch(uri) is None:
            self.bill.refuse(f"`$ref` is no URI reference ({uri[:80]})", path)
        target = self._follow(uri, depth, path)
        if target is True and not localised(self._references.root, str(uri)).startswith("#"):
            self.bill.refuse(f"`$ref` points out of the schema ({str(uri)[:80]})", path)

    def _resolve(self, uri: str) -> object:
        if not uri.startswith("#"):
            self._left -= _DOCUMENT_WORK
            document = self._references.document(uri)
            if document is not MISSING:
                return document
        return super()._resolve(localised(self._references.root, uri))

    def _literals(self, values: list[object], path: Path | None) -> None:
        self._left -= len(values) // 8
        size = float(sum([len(value) if isinstance(value, str) else 8 for value in values]))
        if size > 64:
            self.bill.add("literal_bytes", size, path)
        else:
            self.bill.counts["literal_bytes"] = self.bill.counts.get("literal_bytes", 0.0) + size
        counts, peaks = self.bill.counts, self.bill.peaks
        counts["literal_values"] = counts.get("literal_values", 0.0) + len(values)
        peaks["literal_values"] = max(peaks.get("literal_values", 0.0), len(values))
        if size > _MAX_LITERAL_BYTES:
            self.bill.refuse(f"literals of more than {_MAX_LITERAL_BYTES:,} bytes (the lexer gives up)", path)

    def _typed(self, schema: Mapping[str, object], kind: str, depth: int, path: Path | None, one_of_many: bool) -> None:
        counts = self.bill.counts
        if kind == "object":
            if not one_of_many or _OBJECT_KEYWORDS.intersection(schema):
                self._object(schema, depth, path)
        elif kind == "string":
            self._string(schema, path)
        elif kind == "array":
            self._array(schema, depth, path)
        elif kind in ("number", "integer"):
            bounded = self._range(schema, path)
            name = "bounded_numbers" if bounded else "multiples" if "multipleOf" in schema else "numbers"
            counts[name] = counts.get(name, 0.0) + 1.0
        elif kind not in ("null", "boolean"):
            standard = self._standard(kind, path)
            if standard is not None:
                self._typed(schema, standard, depth, path, one_of_many)

    def _string(self, schema: Mapping[str, object], path: Path | None) -> None:
        bill = self.bill
        form = schema.get("format")
        if form is not None:
            if not isinstance(form, str) or form not in FORMATS:
                bill.refuse(f"unknown format {str(form)[:40]!r}", path)
            else:
                bill.add(f"format_{form}", 1.0, path)
        if "pattern" in schema:
            self._pattern(schema["pattern"], pattern_bill, path)
        low, high = self._bounds(schema, "minLength", "maxLength", path)
        if high != -1 or low:
            bill.add("bounded_text", 1.0, path)
        elif "pattern" not in schema and form is None:
            bill.counts["text"] = bill.counts.get("text", 0.0) + 1.0

    def _array(self, schema: Mapping[str, object], depth: int, path: Path | None) -> None:
        bill, items, keyword = self.bill, schema.get("items"), "prefixItems"
        if isinstance(items, list):
            keyword = "items"
        if keyword in schema and self._push_all(schema[keyword], keyword, depth, path) is None:
            return
        if isinstance(items, list):
            items = schema.get("additionalItems")
        if items is not None:
            self._stack.append((items, depth + 1, Path(path, "items"), None))
        low, high = self._bounds(schema, "minItems", "maxItems", path)
        if high != -1 or low:
            bill.add("counted_items", 1.0, path)
        bill.counts["arrays"] = bill.counts.get("arrays", 0.0) + 1.0

    def _object(self, schema: Mapping[str, object], depth: int, path: Path | None) -> None:
        bill = self.bill
        members = self._members(schema, depth, path)
        if members is None:
            return
        properties, patterns, needed = members
        additional = schema.get("additionalProperties", True)
        is_open = additional is not False
        if is_open:
            self._stack.append((additional, depth + 1, Path(path, "additionalProperties"), None))
            names = float(sum(map(len, properties)))
            if names:
                bill.add("open_name_bytes", names, path)
        optional = sum([name not in needed for name in properties])
        low, high = self._bounds(schema, "minProperties", "maxProperties", path)
        if optional and (high != -1 or low > len(needed)):
            if not is_open and not patterns and low in (0, 1) and high in (-1, 1):
                bill.add("spelled_out_properties", float(optional * len(properties)), path)
            else:
                bill.refuse("`minProperties` and `maxProperties` beside optional properties", path)
        counts = bill.counts
        counts["properties"] = counts.get("properties", 0.0) + len(properties)
        counts["objects"] = counts.get("objects", 0.0) + 1.0
        if optional > 8:
            bill.add("optional_properties", float(optional), path)


def _draft_of(schema: object) -> int:
    """The draft that `$schema` names, as an index into `_DRAFTS`; the newest where it names none."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(named, str):
        for index, draft in enumerate(_DRAFTS):
            if draft in named:
                return index
    return len(_DRAFTS) - 1


@lru_cache(maxsize=4096)
def pattern_bill(source: str, vocabulary: Vocabulary) -> PatternBill:
    """The bill of one pattern."""
    return read_pattern(source, lambda regex: _quantities(regex, vocabulary), _refuses)


def _refuses(regex: Regex) -> str | None:
    if regex.lookaround or regex.backreference or regex.boundary:
        return "has a lookaround, a word boundary or a backreference"
    return None


def _quantities(regex: Regex, vocabulary: Vocabulary) -> list[tuple[str, float]]:
    width = max(
        (vocabulary.share(place.chars) for place in regex.positions if place.loop or place.copies >= _LONG), default=0.0
    )
    nested = max((place.copies for place in regex.positions if place.loop), default=1)
    return [
        ("patterns", 1.0),
        ("pattern_states", float(min(regex.states, _MOST))),
        ("pattern_width", width),
        ("counted_loops", float(min(nested, _MOST) if nested > 1 else 0)),
    ]
