"""Character classes as six groups, and what share of a vocabulary's tokens is made of a class alone.

An engine that keeps a mask for an automaton's state tries every token of the vocabulary there; the ones that cost are
those that the state's class lets through to their end. So the price of a class is the number of tokens made of its
characters only: `[0-9]` has few, `[a-z ]` has most words. Owns that count; knows no regex and no price.
"""

from functools import lru_cache
from typing import NamedTuple

DIGIT, LOWER, UPPER, SPACE, PUNCT, OTHER = (1 << i for i in range(6))
"""The groups. `OTHER` is everything outside printable ASCII: control characters and all other scripts."""
GROUPS = {"digit": DIGIT, "lower": LOWER, "upper": UPPER, "space": SPACE, "punct": PUNCT, "other": OTHER}


def _mask(characters: str) -> int:
    return sum(1 << ord(character) for character in characters)


DIGITS = _mask("0123456789")
LOWERS = _mask("abcdefghijklmnopqrstuvwxyz")
UPPERS = _mask("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SPACES = _mask(" ")
PUNCTS = sum(1 << code for code in range(33, 127)) & ~(DIGITS | LOWERS | UPPERS)
PRINTABLE = DIGITS | LOWERS | UPPERS | SPACES | PUNCTS
ASCII = (1 << 128) - 1
_COMMON_PUNCT = {".": 0.29, "_": 0.26, "(": 0.12, "-": 0.09, "/": 0.05}
_RARE_PUNCT = (1.0 - sum(_COMMON_PUNCT.values())) / 27
_PARTIAL_LENGTH = 3
"""A token has about this many characters of a group that a class covers only in part."""


class CharClass(NamedTuple):
    """The characters that one position of a pattern may take: `mask` has a bit for each of ASCII's 128, `beyond` is the
    share (0 to 1) of everything beyond ASCII."""

    mask: int
    beyond: float = 0.0

    def __or__(self, other: "CharClass") -> "CharClass":
        return CharClass(self.mask | other.mask, max(self.beyond, other.beyond))

    def inverted(self) -> "CharClass":
        """Every character that this class has not."""
        return CharClass(ASCII & ~self.mask, 1.0 - self.beyond)

    @property
    def size(self) -> int:
        """Characters in the class; beyond ASCII they count as one thousand."""
        return self.mask.bit_count() + round(1000 * self.beyond)


@lru_cache(maxsize=4096)
def coverage(chars: CharClass) -> tuple[float, ...]:
    """The share of each group that the class covers, in the order of `GROUPS`."""
    punct = chars.mask & PUNCTS
    covered = 0.0
    if punct == PUNCTS:
        covered = 1.0
    elif punct:
        covered = sum(weight for character, weight in _COMMON_PUNCT.items() if punct >> ord(character) & 1)
        covered += _RARE_PUNCT * (punct.bit_count() - sum(punct >> ord(c) & 1 for c in _COMMON_PUNCT))
    return (
        (chars.mask & DIGITS).bit_count() / 10,
        (chars.mask & LOWERS).bit_count() / 26,
        (chars.mask & UPPERS).bit_count() / 26,
        float(chars.mask & SPACES != 0),
        min(1.0, covered),
        chars.beyond,
    )


def token_share(chars: CharClass, shares: tuple[tuple[int, float], ...]) -> float:
    """The share of a vocabulary's tokens that consist of characters of the class only.

    shares: for each set of groups (a bit mask) the share of tokens whose characters come from exactly these groups.
    """
    covered = coverage(chars)
    total = 0.0
    for groups, share in shares:
        for index, part in enumerate(covered):
            if groups >> index & 1 and part < 1.0:
                share *= part**_PARTIAL_LENGTH if part else 0.0
        total += share
    return total


ANY = CharClass(ASCII & ~(1 << 10), 1.0)
DIGIT_CLASS = CharClass(DIGITS)
WORD_CLASS = CharClass(DIGITS | LOWERS | UPPERS | _mask("_"))
SPACE_CLASS = CharClass(_mask(" \t\n\r\f\v"))
