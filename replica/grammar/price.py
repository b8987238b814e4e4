"""Which grammars look so dear to compile that they are tried in a child first: a rough upper guess, bounded in work.

Only mechanisms known to take seconds are priced, after measurements of xgrammar 0.2.9 on 151,936 tokens: an object
with named properties that stays open costs 25 ms for every node of the trie of its names; a counted repetition up to
128 times the price of its class, nested ones multiply; nested unions multiply; enums cost by the byte. It errs on the
dear side: a wrong guess costs one compile in a child, never a request. The gateway's prediction is the exact one.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

_TRIE_NODE_MS = 25.0
_ENUM_BYTE_MS = 0.005
_OBJECT_MS = 0.7
# Per repetition: `.` and negated classes, words, ordinary classes.
_WIDE_MS, _WORD_MS, _CLASS_MS = 18.6, 4.5, 1.9
_AUTOMATON_LIMIT = 128
_MOST_NODES = 50_000
_MOST_PATTERN_BYTES = 65_536
_COUNTED = re.compile(r"(\]|\)|\\?.)\{(\d{1,6})(?:,(\d{0,6}))?\}")
_WIDE_CLASS = re.compile(r"\[\^|(?<!\\)\.|\\[DWSP]")
_WORD_CLASS = re.compile(r"[A-Za-z]-[A-Za-z].*[a-zA-Z0-9]-[a-zA-Z0-9]|\\w")
UNKNOWN_MS = float("inf")


def compile_price_ms(kind: str, text: str) -> float:
    """A guess at the compile time of a grammar of SGLang's `kind`, in ms of one thread. Infinite: too big to tell."""
    if kind.startswith("regex") or "ebnf" in kind:
        return pattern_price_ms(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0  # The backend refuses it at once, or it is a name like $$ANY$$.
    return _schema_price_ms(document)


def pattern_price_ms(pattern: str) -> float:
    """Counted repetitions of a regex or EBNF text: the product of those that nest, the sum of the others."""
    if len(pattern) > _MOST_PATTERN_BYTES:
        return UNKNOWN_MS
    # Price of what stands in each open group, outermost first.
    groups: list[float] = [0.0]
    counted = {match.start(): match for match in _COUNTED.finditer(pattern)}
    position = 0
    while position < len(pattern):
        character = pattern[position]
        match = counted.get(position)
        if character == "\\" and match is None:
            position += 2
            continue
        if character == "(":
            groups.append(0.0)
        elif character == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1] += inner * (_bound(match) if match else 1)
        elif match is not None:
            groups[-1] += min(_bound(match), _AUTOMATON_LIMIT) * _class_price_ms(
                pattern[max(0, position - 80) : position + 1]
            )
        position += 1
    return sum(groups)


def _bound(match: re.Match[str]) -> int:
    low, high = match.group(2), match.group(3)
    return max(1, int(high or low))


def _class_price_ms(before: str) -> float:
    """Price of one repetition of the class that ends `before`."""
    atom = before[before.rfind("[") :] if before.endswith("]") else before[-2:]
    if _WIDE_CLASS.search(atom):
        return _WIDE_MS
    return _WORD_MS if _WORD_CLASS.search(atom) else _CLASS_MS


def _schema_price_ms(root: Any) -> float:
    price = 0.0
    nodes = 0
    stack: list[tuple[Any, float]] = [(root, 1.0)]
    while stack:
        node, times = stack.pop()
        nodes += 1
        if nodes > _MOST_NODES:
            return UNKNOWN_MS
        if isinstance(node, list):
            stack.extend((item, times) for item in node)
            continue
        if not isinstance(node, dict):
            continue
        price += times * _object_price_ms(node)
        for key, value in node.items():
            wider = times
            if key in {"anyOf", "oneOf"} and isinstance(value, list) and len(value) > 1:
                wider = min(times * len(value), 1e9)
            if key not in {"enum", "const", "examples", "default", "description", "title"}:
                stack.append((value, wider))
    return price


def _object_price_ms(node: dict[str, Any]) -> float:
    price = 0.0
    names = node.get("properties")
    if isinstance(names, dict):
        price += _OBJECT_MS
        if node.get("additionalProperties", False) is not False or "patternProperties" in node:
            price += _TRIE_NODE_MS * _trie_nodes(names)
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        price += pattern_price_ms(pattern)
    values = node.get("enum")
    if isinstance(values, list):
        price += _ENUM_BYTE_MS * sum([len(value) for value in values if isinstance(value, str)])
    return price


def _trie_nodes(names: Iterable[str]) -> int:
    """Nodes of the trie of all names; shared prefixes count once."""
    total = 0
    before = ""
    for name in sorted(names):
        shared = 0
        for one, other in zip(before, name, strict=False):
            if one != other:
                break
            shared += 1
        total += len(name) - shared
        before = name
    return total
