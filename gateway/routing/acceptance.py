"""What a condition takes of the values of its variable, as plain sets: enough to say that one takes all of another's.

Where that can't be said for sure the answer is no. Knows no variable by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from `low` to `high`, each of the two included or not."""

    low: float = -inf
    high: float = inf
    low_included: bool = True
    high_included: bool = True

    def takes(self, other: "Span") -> bool:
        """Whether every number of `other` is in this one."""
        low = self.low < other.low or (self.low == other.low and (self.low_included or not other.low_included))
        high = self.high > other.high or (self.high == other.high and (self.high_included or not other.high_included))
        return low and high


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Single values, values that match a pattern, and spans of numbers; any of them is taken."""

    words: frozenset[object] = frozenset()
    patterns: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether nothing is taken but `words`."""
        return not self.patterns and not self.spans

    def takes(self, other: "Acceptance") -> bool:
        """Whether everything that `other` takes is taken here. Plain loops: see `Rule.takes_all_of`."""
        for pattern in other.patterns:
            if pattern not in self.patterns and "*" not in self.patterns:
                return False
        for word in other.words:
            if not self._takes_word(word):
                return False
        return all(any(span.takes(wanted) for span in self.spans) for wanted in other.spans)

    def _takes_word(self, word: object) -> bool:
        return word in self.words or (
            isinstance(word, str) and any(fnmatchcase(word, pattern) for pattern in self.patterns)
        )


def any_accepted(acceptances: Iterable[Acceptance]) -> Acceptance:
    """What one of several takes."""
    words: frozenset[object] = frozenset()
    patterns: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    for each in acceptances:
        words |= each.words
        patterns += each.patterns
        spans += each.spans
    return Acceptance(words, patterns, spans)
