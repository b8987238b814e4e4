"""The two signatures of a request: stable across processes and versions, and never a function of the prompt."""

import re
from hashlib import blake2b

_SIGNATURE = re.compile(r"s\d{1,3}-[0-9a-f]{16}")


def digest(prefix: str, text: bytes) -> str:
    """`prefix`, a dash and 16 hex digits: 64 bits, so that a million signatures collide once in 40 million books."""
    return f"{prefix}-{blake2b(text, digest_size=8).hexdigest()}"


def bucket(value: float) -> int:
    """The power-of-two bucket of a size: 0, 1, 2, 3-4, 5-8, and so on; a bucket spans a factor of two."""
    return 0 if value <= 0 else max(1, int(value - 1).bit_length() + 1)


def is_signature(text: str) -> bool:
    """Whether it looks like a cost signature, of this version's prefix or of another's."""
    return _SIGNATURE.fullmatch(text) is not None
