"""Stop strings and stop expressions, matched on decoded text as SGLang does on its scheduler thread.

Each step decodes the tail of the output again, long enough for the longest stop string; a `stop_regex` is searched by
Python's `re` over as much text as it can match, which for an unbounded pattern is all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from replica.simulator.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class StopCheck:
    """Outcome of one step. `hold`: the text ends like the beginning of a stop string, so it must not be sent yet."""

    matched: str | None = None
    hold: bool = False


_GO_ON = StopCheck()
_HOLD = StopCheck(hold=True)
# A pattern with unbounded repetition is searched in the whole output, in every step.
_UNBOUNDED = 2**30


class StopMatcher:
    """The stop conditions on text of one sequence."""

    __slots__ = ("_expressions", "_longest", "_prefixes", "_strings", "_tail", "_vocabulary")

    def __init__(self, strings: tuple[str, ...], expressions: tuple[str, ...], vocabulary: Vocabulary) -> None:
        self._strings = tuple(s for s in strings if s)
        self._expressions = tuple((source, re.compile(source)) for source in expressions)
        self._prefixes = frozenset(s[:i] for s in self._strings for i in range(1, len(s)))
        self._longest = max(map(len, self._prefixes), default=0)
        self._vocabulary = vocabulary
        # A token is a byte at least, so a match spans no more tokens than it has bytes. (SGLang counts tokens of the
        # string's own encoding, and misses a string that the model spells in smaller ones.)
        lengths = [len(s.encode()) for s in self._strings]
        lengths += [_longest_match(e) for e in expressions]
        self._tail = max(lengths, default=1)

    def check(self, output: Sequence[int]) -> StopCheck:
        """Look at the output so far, its last token new."""
        tail = self._vocabulary.decode(output[-self._tail :])
        for string in self._strings:
            if string in tail:
                return StopCheck(matched=string)
        for source, expression in self._expressions:
            if expression.search(tail):
                return StopCheck(matched=source)
        for length in range(1, self._longest + 1):
            if tail[-length:] in self._prefixes:
                return _HOLD
        return _GO_ON


def _longest_match(pattern: str) -> int:
    """Upper bound of the bytes of a match of the pattern."""
    _, characters = re._parser.parse(pattern).getwidth()  # type: ignore[attr-defined]
    return max(1, min(4 * int(characters), _UNBOUNDED))
