"""Pseudo-logits: a float32 row over the vocabulary for every (sequence key, position), and log probabilities from it.

One seeded base row is turned by a pseudo-random offset, so a row is a view of a doubled base row and costs nothing;
its largest entries are known without a search. The token that the sampler chose is given a peak above them all.
This stands for the GPU's part of the work.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MASK64 = (1 << 64) - 1
_SPREAD = 3.0
_PEAK = 1.5
# Largest entries of the base row that are kept in order; a request may ask for at most this many alternatives.
MAX_TOP = 1024


def sequence_key(seed: int, prompt: list[int], choice: int) -> int:
    """64 bits that decide a reply: equal for equal requests, whatever else is in the batch."""
    digest = blake2b(np.asarray(prompt, np.int64).tobytes(), digest_size=8, key=f"{seed}:{choice}".encode())
    return int.from_bytes(digest.digest(), "little")


def mix(key: int, position: int) -> int:
    """64 pseudo-random bits for a position of a sequence (splitmix64's finaliser)."""
    x = (key + position * 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


class TopRow(NamedTuple):
    """Log probabilities of the chosen token and of the `k` likeliest ones, in falling order."""

    chosen: float
    values: NDArray[np.float32]
    tokens: NDArray[np.int64]


class PseudoLogits:
    """Rows for one vocabulary and one replica seed. Read-only, so shared freely."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        base = (np.random.default_rng(seed).standard_normal(size, np.float32) * _SPREAD).astype(np.float32)
        self._ring = np.concatenate((base, base))
        self._order = np.argsort(-base)[:MAX_TOP].astype(np.int64)
        self._sorted = base[self._order]
        self._peak = float(self._sorted[0]) + _PEAK
        self._mass = float(np.exp(base.astype(np.float64)).sum())

    def row(self, key: int, position: int) -> NDArray[np.float32]:
        """The row as a view; never write to it."""
        shift = mix(key, position) % self.size
        return self._ring[shift : shift + self.size]

    def top(self, key: int, position: int, chosen: int, k: int) -> TopRow:
        """Log probabilities over the whole vocabulary."""
        shift = mix(key, position) % self.size
        own = self._ring[shift + chosen]
        norm = np.log(self._mass - float(np.exp(np.float64(own))) + np.exp(self._peak))
        others = (self._order[: k + 1] - shift) % self.size
        keep = others != chosen
        tokens = np.concatenate((np.array([chosen], np.int64), others[keep]))[:k]
        values = np.concatenate((np.array([self._peak], np.float32), self._sorted[: k + 1][keep]))[:k]
        return TopRow(float(self._peak - norm), values - np.float32(norm), tokens)

    def top_allowed(self, key: int, position: int, chosen: int, k: int, allowed: NDArray[np.int64]) -> TopRow:
        """Log probabilities over the tokens that a mask allows; never more than there are."""
        logits = self.row(key, position)[allowed]
        logits[allowed == chosen] = self._peak
        norm = np.log(np.exp(logits, dtype=np.float64).sum())
        k = min(k, len(allowed))
        largest = np.argpartition(-logits, k - 1)[:k] if k else np.empty(0, np.int64)
        largest = largest[np.argsort(-logits[largest], kind="stable")]
        return TopRow(float(self._peak - norm), logits[largest] - np.float32(norm), allowed[largest])
