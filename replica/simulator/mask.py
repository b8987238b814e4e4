"""The mask of allowed next tokens: one bit a token, in 32-bit words. Knows no grammar."""

import numpy as np
from numpy.typing import NDArray


class Mask:
    """Room for one row of a vocabulary. The grammar engine writes it by its address, the sampler reads single bits."""

    __slots__ = ("address", "bits", "size_bytes", "words")

    def __init__(self, vocabulary_size: int) -> None:
        self.words: NDArray[np.uint32] = np.zeros((vocabulary_size + 31) // 32, np.uint32)
        self.address: int = self.words.ctypes.data
        self.size_bytes = self.words.nbytes
        self.bits = memoryview(self.words.data)

    def tokens(self) -> NDArray[np.int64]:
        """All allowed tokens, ascending."""
        filled = np.flatnonzero(self.words)
        bits = np.unpackbits(self.words[filled].view(np.uint8), bitorder="little").reshape(-1, 32)
        rows, columns = np.nonzero(bits)
        return filled[rows] * 32 + columns
