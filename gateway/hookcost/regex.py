"""The anatomy of a regular expression: what an automaton of it would be made of.

One bounded pass over the source, ECMA and Python syntax alike, without recursion and without building an automaton.
Owns which parts repeat, how often, over which characters, and what a linear-time engine can't do. Prices nothing.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.hookcost.charclass import (
    ANY,
    ASCII,
    DIGIT_CLASS,
    SPACE_CLASS,
    WORD_CLASS,
    CharClass,
)
from gateway.hookcost.regexparts import Group, Part, Position, meet

MAX_GROUP_DEPTH = 256
MAX_SOURCE_CHARS = 64 * 1024
UNBOUNDED = 1 << 30
"""The upper bound of `*`, `+` and `{n,}`."""
_MAX_COPIES = 1 << 40
MAX_WORK = 500
"""Steps of the analysis, of one to four microseconds; patterns of real schemas need some ten."""


class RegexError(ValueError):
    """A source that no engine compiles. `str()` says why, `position` where."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class RegexBoundError(ValueError):
    """A source beyond the bounds of the analysis: to be taken for heavy. `str()` names the bound."""


@dataclass(slots=True)
class Regex:
    """What one source is made of."""

    source: str
    work: int = 0
    """Steps that the analysis took."""
    positions: list[Position] = field(default_factory=list)
    """Places that take one of several characters, or repeat."""
    literals: int = 0
    """Characters that stand for themselves, once."""
    branches: int = 0
    """Alternatives beyond the first, over the whole source."""
    depth: int = 0
    """The deepest nesting of groups."""
    lookaround: bool = False
    boundary: bool = False
    """`\\b` or `\\B`."""
    unicode_property: bool = False
    """`\\p{…}`."""
    backreference: bool = False
    non_ascii: bool = False
    nested_loops: int = 0
    """Unbounded repetitions inside unbounded repetitions, at most so deep: one path of many to the same text."""
    ambiguous_repeats: int = 0
    """Repetitions of something that itself repeats and may go over into what follows: a text is split in many ways."""
    adjacent_loops: int = 0
    """Unbounded repetitions that follow each other over common characters: a split in polynomially many ways."""

    @property
    def states(self) -> int:
        """States of the unrolled automaton, roughly."""
        return self.literals + sum(position.copies for position in self.positions)


_PLAIN = re.compile(r"[^\\()\[\]{}.*+?|^$]+")


def read_regex(source: str) -> Regex:
    """Takes a source apart, in time linear in its length.

    Raises:
        RegexError: unbalanced or nested too deeply, a bad range or count, nothing to repeat.
        RegexBoundError: longer, or more densely nested, than the analysis goes.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise RegexBoundError(f"a pattern longer than {MAX_SOURCE_CHARS // 1024} KiB")
    return _Reader(source).read()


class _Reader:
    """One pass from left to right; open groups are kept on a stack of our own."""

    __slots__ = ("at", "found", "groups", "source", "work")

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.work = 0
        self.groups = [Group(0)]
        self.found = Regex(source, non_ascii=not source.isascii())

    def read(self) -> Regex:
        source, found = self.source, self.found
        while self.at < len(source):
            self.spend(1)
            character = source[self.at]
            if character == "(":
                self.open_group()
            elif character == ")":
                self.close_group()
            elif character == "|":
                self.at += 1
                found.branches += 1
                self.groups[-1].next_branch()
            else:
                run = _PLAIN.match(source, self.at)
                if run is not None:
                    self.literals(run.end())
                else:
                    self.put(self.atom(character))
        if len(self.groups) > 1:
            raise RegexError("a group without `)`", self.groups[-1].start)
        part = self.groups[0].close()
        found.positions = part.positions
        found.literals += part.literals
        found.work = self.work
        return found

    def literals(self, end: int) -> None:
        """A run of characters that stand for themselves; the last may carry a quantifier."""
        start, source = self.at, self.source
        single = end < len(source) and source[end] in "*+?{"
        if end - single > start:
            self.groups[-1].append(
                Part([], nullable=False, head=_literal(source[start]), literals=end - single - start)
            )
        self.at = end
        if single:
            self.put(_single(_literal(source[end - 1])))

    def put(self, part: Part | None) -> None:
        """Reads the quantifiers behind an atom or group, and appends it."""
        source = self.source
        while self.at < len(source):
            bounds = self.bounds()
            if bounds is None:
                break
            if part is None:
                raise RegexError("nothing to repeat", self.at)
            part = self.repeated(part, *bounds)
            if self.at < len(source) and source[self.at] in "?+":
                self.at += 1
        if part is not None and self.groups[-1].append(part):
            self.found.adjacent_loops += 1

    def repeated(self, part: Part, low: int, high: int) -> Part:
        self.spend(len(part.positions))
        tail_loop, tail = part.tail_loop, part.tail
        if high > 1 and (part.blurred or meet(part.tail, part.head)):
            self.found.ambiguous_repeats += 1
        if high > max(1, low):
            tail = part.chars
        if high == UNBOUNDED:
            copies, loops = max(1, low), part.loops + 1
            self.found.nested_loops = max(self.found.nested_loops, loops)
            tail_loop = part.chars
        else:
            copies, loops = high, part.loops
        repeat = high if high < UNBOUNDED else low
        positions = [
            Position(
                position.chars,
                min(position.copies * copies, _MAX_COPIES),
                max(position.repeat, repeat),
                position.loop or high == UNBOUNDED,
                position.plus or (high == UNBOUNDED and low > 0),
                position.fenced,
                position.fence,
            )
            for position in part.positions
        ]
        literals = min(part.literals * copies, _MAX_COPIES)
        nullable = part.nullable or low == 0
        return Part(positions, nullable, loops, part.head, tail_loop, literals, tail, part.blurred)

    def spend(self, steps: int) -> None:
        self.work += steps
        if self.work > MAX_WORK:
            raise RegexBoundError(f"a pattern that takes more than {MAX_WORK:,} steps to analyse")

    def bounds(self) -> tuple[int, int] | None:
        """The quantifier here, if there is one."""
        character = self.source[self.at]
        simple = _QUANTIFIERS.get(character)
        if simple is not None:
            self.at += 1
            return simple
        if character != "{":
            return None
        counted = _COUNTED.match(self.source, self.at)
        if counted is None or (not counted[1] and not counted[3]):
            return None  # a literal brace, as ECMA has it
        low = min(int(counted[1]), UNBOUNDED - 1) if counted[1] else 0
        high = low
        if counted[2]:
            high = min(int(counted[3]), UNBOUNDED - 1) if counted[3] else UNBOUNDED
        if high < low:
            raise RegexError(f"repetition {counted[0]} has its bounds the wrong way round", self.at)
        self.at = counted.end()
        return low, high

    def atom(self, character: str) -> Part | None:
        start = self.at
        self.at += 1
        if character == "[":
            return _single(self.bracket(start))
        if character == ".":
            return _single(ANY)
        if character in "^$":
            return None
        if character in "*+?":
            raise RegexError(f"nothing to repeat before `{character}`", start)
        if character == "\\":
            return self.escape(start)
        return _single(_literal(character))  # a literal brace or closing bracket

    def open_group(self) -> None:
        start, source = self.at, self.source
        self.at += 1
        look = False
        if source.startswith("?", self.at):
            kind = _GROUP_KIND.match(source, self.at)
            if kind is None:
                raise RegexError("an unknown kind of group", start)
            self.at = kind.end()
            if kind[0].endswith(")"):
                return  # flags such as (?i)
            look = kind[1] is not None
            self.found.lookaround |= look
        if len(self.groups) > MAX_GROUP_DEPTH:
            raise RegexError(f"groups nested more than {MAX_GROUP_DEPTH} deep", start)
        self.groups.append(Group(start, look))
        self.found.depth = max(self.found.depth, len(self.groups) - 1)

    def close_group(self) -> None:
        if len(self.groups) == 1:
            raise RegexError("unbalanced `)`", self.at)
        self.at += 1
        group = self.groups.pop()
        self.put(None if group.look else group.close())

    def escape(self, start: int) -> Part | None:
        if self.at >= len(self.source):
            raise RegexError("a backslash at the end", start)
        character = self.source[self.at]
        if character in "bB":
            self.at += 1
            self.found.boundary = True
            return None
        if character in "AzZG":
            self.at += 1
            return None
        if character.isdecimal() and character != "0":
            self.at += 1
            self.found.backreference = True
            return None
        if character == "k" and self.source.startswith("<", self.at + 1):
            self.at = self.source.find(">", self.at) + 1 or len(self.source)
            self.found.backreference = True
            return None
        return _single(self.escaped_class())

    def escaped_class(self) -> CharClass:
        """The class that the escape at `at` (after its backslash) stands for, inside brackets or outside."""
        character = self.source[self.at]
        self.at += 1
        known = _ESCAPES.get(character)
        if known is not None:
            return known
        if character in "pP" and self.source.startswith("{", self.at):
            end = self.source.find("}", self.at, self.at + 60)
            if end < 0:
                raise RegexError("`\\p{` without `}`", self.at)
            self.at = end + 1
            self.found.unicode_property = True
            letters = CharClass(WORD_CLASS.mask & ~DIGIT_CLASS.mask & ~(1 << ord("_")), 1.0)
            return letters.inverted() if character == "P" else letters
        if character in "xu":
            code = self.code_point(character)
            return _literal(chr(code)) if code is not None else _literal(character)
        if character == "c" and self.at < len(self.source):
            self.at += 1
            return CharClass(1 << (ord(self.source[self.at - 1]) & 31))
        return _literal(character)

    def code_point(self, kind: str) -> int | None:
        if self.source.startswith("{", self.at):
            end = self.source.find("}", self.at, self.at + 12)
            digits = self.source[self.at + 1 : end] if end > 0 else ""
            end += 1
        else:
            end = self.at + (2 if kind == "x" else 4)
            digits = self.source[self.at : end]
        try:
            code = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            return None
        if not 0 <= code <= 0x10FFFF:
            return None
        self.at = end
        return code

    def bracket(self, start: int) -> CharClass:
        negated = self.source.startswith("^", self.at)
        self.at += negated
        chars = CharClass(0)
        if self.source.startswith("]", self.at) and self.source.find("]", self.at + 1) > 0:
            self.at += 1
            chars = _literal("]")
        while not self.source.startswith("]", self.at):
            self.spend(1)
            chars = chars | self.bracket_range(start)
        self.at += 1
        return chars.inverted() if negated else chars

    def bracket_range(self, start: int) -> CharClass:
        """One member of a bracket, or a range of them."""
        low, chars = self.bracket_item(start)
        if low is None or not self.source.startswith("-", self.at) or self.source.startswith("-]", self.at):
            return chars
        mark = self.at
        self.at += 1
        high, other = self.bracket_item(start)
        if high is None:
            return chars | other | _literal("-")
        if high < low:
            raise RegexError(f"a range from {chr(low)!r} down to {chr(high)!r}", mark)
        return _range(low, high)

    def bracket_item(self, start: int) -> tuple[int | None, CharClass]:
        """One member of a bracket: its code point, or None where it is itself a class."""
        if self.at >= len(self.source):
            raise RegexError("a character class without `]`", start)
        character = self.source[self.at]
        self.at += 1
        if character != "\\":
            return ord(character), _literal(character)
        if self.at >= len(self.source):
            raise RegexError("a backslash at the end", self.at - 1)
        if self.source[self.at] == "b":
            self.at += 1
            return 8, CharClass(1 << 8)
        before = self.source[self.at]
        if before in "xu":
            self.at += 1
            code = self.code_point(before)
            character = before if code is None else chr(code)
            return ord(character), _literal(character)
        chars = self.escaped_class()
        if before in "dDwWsSpP":
            return None, chars
        return (chars.mask.bit_length() - 1 if chars.mask else _BEYOND), chars


def _single(chars: CharClass) -> Part:
    return Part([Position(chars)], nullable=False, head=chars)


@lru_cache(maxsize=1024)
def _literal(character: str) -> CharClass:
    code = ord(character)
    return CharClass(1 << code) if code < 128 else CharClass(0, 0.001)


def _range(low: int, high: int) -> CharClass:
    mask = ((1 << (min(high, 127) + 1)) - 1) & ~((1 << low) - 1) if low < 128 else 0
    beyond = 0.0
    if high >= 128:
        beyond = _beyond(high - max(low, 128) + 1)
    return CharClass(mask & ASCII, beyond)


def _beyond(characters: int) -> float:
    """The share of what is beyond ASCII that a range covers, as the tokens see it: they are bytes, and all characters
    of a script begin with the same few."""
    if characters < _SCRIPT:
        return 0.001
    return min(1.0, max(characters / 40_000, 0.5 + 0.17 * characters / 40_000))


_QUANTIFIERS = {"*": (0, UNBOUNDED), "+": (1, UNBOUNDED), "?": (0, 1)}
_COUNTED = re.compile(r"\{ *+(\d{0,12}+) *+(,)?+ *+(\d{0,12}+) *+\}")
"""Possessive: what has matched is not given back, or a run of spaces would be split in all ways."""
_GROUP_KIND = re.compile(r"\?(?:(=|!|<=|<!)|:|>|P?<[^>]{1,200}>|[a-zA-Z^-]{1,12}[:)])")
_SCRIPT = 16
_BEYOND = 0x3000
"""Stands for a code point beyond ASCII whose exact place does not matter."""
_ESCAPES = {
    "d": DIGIT_CLASS,
    "D": DIGIT_CLASS.inverted(),
    "w": WORD_CLASS,
    "W": WORD_CLASS.inverted(),
    "s": SPACE_CLASS,
    "S": SPACE_CLASS.inverted(),
    "n": CharClass(1 << 10),
    "r": CharClass(1 << 13),
    "t": CharClass(1 << 9),
    "f": CharClass(1 << 12),
    "v": CharClass(1 << 11),
    "0": CharClass(1),
}
