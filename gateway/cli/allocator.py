"""What the C library does with memory that was freed."""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""glibc, malloc.h."""
_KEPT_BYTES: Final = 32 << 20
_OWN_MAPPING_BYTES: Final = 16 << 20


def keep_freed_memory() -> None:
    """Keep some of it for the next large body, instead of giving it back to the system after each.

    The system clears each page that it gives out, which is a quarter of what a body of a megabyte costs us. Only glibc
    can be told so; others do as they please.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
