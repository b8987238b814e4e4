"""The anatomy of a raw grammar in GBNF (xgrammar's EBNF, llama.cpp's) or Lark: what a parser has to keep open at once.

One bounded pass over the source. A raw grammar can be ambiguous in ways that no static look settles, so what is not
plainly finite counts as free. Owns counted and unbounded repetition, recursion and nesting; prices nothing.
"""

import re
from dataclasses import dataclass, field

MAX_SOURCE_CHARS = 64 * 1024
MAX_NESTING = 256
_MAX_TOKENS = 1_500

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*|//[^\n]*)
      | (?P<define>[A-Za-z_][\w.-]*+\s*+(?:::=|:(?!:)))
      | (?P<name>[A-Za-z_][\w.-]*)
      | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"i?|'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<class>\[[^\]\\]*+(?:\\.[^\]\\]*+)*+\])
      | (?P<regex>/[^/\\]*+(?:\\.[^/\\]*+)*+/[a-z]*)
      | (?P<count>\{\s*+\d*+\s*+(?:,\s*+\d*+)?+\s*+\})
      | (?P<loop>[*+])
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Possessive: what has matched is not given back, or a mark that never closes would be tried in all ways."""
_OPENING = {"[": "]", '"': '"', "'": "'", "/": "/"}


class EbnfError(ValueError):
    """A source that no engine compiles. `str()` says why."""


class EbnfBoundError(ValueError):
    """A source beyond the bounds of the analysis: to be taken for heavy. `str()` names the bound."""


@dataclass(slots=True)
class _Rule:
    """What stands in one rule: names used, loops, counts, and how often it names itself in one alternative."""

    uses: set[str] = field(default_factory=set)
    loops: int = 0
    looped_names: set[str] = field(default_factory=set)
    nested_loops: int = 0
    own_uses: int = 0
    largest_count: int = 1
    optionals: int = 0


@dataclass(slots=True)
class _Open:
    """A group that is still open: the names in it, and whether something repeats."""

    names: set[str] = field(default_factory=set)
    loops: bool = False


@dataclass(frozen=True, slots=True)
class Ebnf:
    """What a grammar is made of.

    rules:          number of rules.
    depth:          the deepest nesting of parentheses.
    loops:          unbounded repetitions (`*`, `+`, `{n,}`).
    nested_loops:   whether one stands inside another, through rules too.
    recursive:      rules that reach themselves or a rule that does.
    ambiguous:      rules with an alternative that names the rule twice: `s ::= s s`.
    largest_count:  the largest bound of a counted repetition.
    optionals:      the most optional parts in one rule.
    """

    rules: int
    depth: int
    loops: int
    nested_loops: bool
    recursive: int
    ambiguous: int
    largest_count: int
    optionals: int

    @property
    def finite(self) -> bool:
        """Whether the grammar is a finite list of texts of bounded length."""
        return self.loops == 0 and self.recursive == 0 and self.largest_count <= 1


def read_ebnf(source: str) -> Ebnf:
    """Takes a grammar apart, in time linear in its length.

    Raises:
        EbnfError: unbalanced or nested too deeply, or without a rule.
        EbnfBoundError: longer than the analysis goes.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise EbnfBoundError(f"a grammar longer than {MAX_SOURCE_CHARS // 1024} KiB")
    rules, depth = _rules_of(source)
    if not rules:
        raise EbnfError("the grammar has no rule (`name ::= ...` was expected)")
    recursive = _recursive(rules)
    looping = {name for name, rule in rules.items() if rule.loops or name in recursive}
    nested = any(rule.nested_loops or any(name in looping for name in rule.looped_names) for rule in rules.values())
    return Ebnf(
        rules=len(rules),
        depth=depth,
        loops=sum(rule.loops for rule in rules.values()),
        nested_loops=nested,
        recursive=len(recursive),
        ambiguous=sum(rule.own_uses > 1 for rule in rules.values()),
        largest_count=max(rule.largest_count for rule in rules.values()),
        optionals=max(rule.optionals for rule in rules.values()),
    )


def _rules_of(source: str) -> tuple[dict[str, _Rule], int]:
    rules: dict[str, _Rule] = {}
    rule, name = _Rule(), ""
    groups: list[_Open] = []
    last_names: set[str] = set()
    last_loops = False
    own = depth = 0
    tokens = _TOKEN.finditer(source)
    for number, token in enumerate(tokens):
        if number > _MAX_TOKENS:
            raise EbnfBoundError(f"a grammar of more than {_MAX_TOKENS:,} symbols")
        kind, text = token.lastgroup, token[0]
        if kind == "space":
            continue
        if kind == "define":
            if groups:
                raise EbnfError(f"`(` is not closed in rule {name!r}")
            name = text.rstrip(":= \t\r\n")
            rule = rules.setdefault(name, _Rule())
            own, last_names, last_loops = 0, set(), False
        elif kind == "name":
            rule.uses.add(text)
            own += text == name
            rule.own_uses = max(rule.own_uses, own)
            last_names, last_loops = {text}, False
            if groups:
                groups[-1].names.add(text)
        elif kind == "loop" or (kind == "count" and _unbounded(text)):
            rule.loops += 1
            rule.nested_loops += last_loops
            rule.looped_names |= last_names
            last_loops = True
            if groups:
                groups[-1].loops = True
        elif kind == "count":
            rule.largest_count = max(rule.largest_count, _bound(text))
        elif text == "(":
            groups.append(_Open())
            depth = max(depth, len(groups))
            if depth > MAX_NESTING:
                raise EbnfError(f"groups nested more than {MAX_NESTING} deep")
        elif text == ")":
            if not groups:
                raise EbnfError(f"unbalanced `)` in rule {name!r}")
            closed = groups.pop()
            last_names, last_loops = closed.names, closed.loops
            if groups:
                groups[-1].names |= closed.names
                groups[-1].loops |= closed.loops
        elif text == "|":
            own = 0 if not groups else own
        elif text == "?":
            rule.optionals += 1
        elif text in _OPENING:
            raise EbnfError(f"`{text}` without `{_OPENING[text]}` in rule {name!r}")
        else:
            last_names, last_loops = set(), kind == "regex" and any(mark in text for mark in "*+")
            rule.loops += last_loops
    if groups:
        raise EbnfError(f"`(` is not closed in rule {name!r}")
    return rules, depth


def _bound(text: str) -> int:
    return max((min(int(number), 1_000_000) for number in re.findall(r"\d{1,9}", text)), default=1)


def _unbounded(text: str) -> bool:
    return "," in text and not text.rstrip("} ").partition(",")[2].strip()


def _recursive(rules: dict[str, _Rule]) -> set[str]:
    """Rules that reach themselves or one that does: what is left when rules that use only settled ones are gone."""
    open_uses = {name: {used for used in rule.uses if used in rules} for name, rule in rules.items()}
    users: dict[str, list[str]] = {}
    for name, uses in open_uses.items():
        for used in uses:
            users.setdefault(used, []).append(name)
    settled = [name for name, uses in open_uses.items() if not uses]
    while settled:
        done = settled.pop()
        for user in users.get(done, []):
            open_uses[user].discard(done)
            if not open_uses[user]:
                settled.append(user)
        open_uses.pop(done, None)
    return set(open_uses)
