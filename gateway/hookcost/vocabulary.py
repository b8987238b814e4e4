"""The tokenizer as the price list sees it: how many tokens, and of which characters they are made."""

from collections.abc import Mapping
from functools import lru_cache

from gateway.hookcost.charclass import GROUPS, SPACES, CharClass, token_share


class Vocabulary:
    """A tokenizer's size and make-up.

    size:   number of tokens.
    shares: for each set of character groups (a bit mask of `charclass.GROUPS`) the share of tokens whose characters
            come from exactly these groups.
    """

    __slots__ = ("_share", "shares", "size")

    def __init__(self, size: int, shares: Mapping[int, float]) -> None:
        self.size = size
        self.shares = tuple(sorted(shares.items()))
        self._share = lru_cache(maxsize=4096)(lambda chars: token_share(chars, self.shares))

    def share(self, chars: CharClass) -> float:
        """The share of tokens that consist of these characters only."""
        return self._share(chars)

    def share_before(self, chars: CharClass, following: CharClass | None) -> float:
        """The share of tokens that begin in `chars` and end in it or in `following`, which stands behind it.

        What crosses from one place of a pattern to the next is nearly always a space and a word: the tokens that begin
        with a space and go on with characters of `following`.
        """
        share = self._share(chars)
        if following is not None and chars.mask & SPACES and not following.mask & SPACES:
            share += self._share(CharClass(following.mask | SPACES, following.beyond)) - self._share(following)
        return share


def group_mask(names: str) -> int:
    """The bit mask of groups named with `+` between them, such as `space+lower`.

    Raises:
        KeyError: a name that is no group.
    """
    mask = 0
    for name in names.split("+"):
        mask |= GROUPS[name]
    return mask


def group_names(mask: int) -> str:
    """The names of the groups in a bit mask, joined by `+`."""
    return "+".join(name for name, group in GROUPS.items() if mask & group)
