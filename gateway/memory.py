"""How this process looks after its memory: when garbage is collected, and what becomes of what was freed."""

import ctypes
import gc
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
"""glibc, malloc.h."""
_KEPT_BYTES: Final = 32 << 20
_OWN_MAPPING_BYTES: Final = 16 << 20


def settle_memory() -> None:
    """Keep full collections off what start-up made: one of its 60,000 objects stalls every stream for 30 ms.

    Exchanges leave no cycles behind, so collections have little to find and full ones may be rare. Smaller ones come
    before there is much to look at: whatever makes many objects at once (a reload, a page of metrics) would otherwise
    have tens of thousands looked at in one turn. What exchanges take and free is kept for the next ones.
    """
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 5, 1_000)


def keep_freed_memory() -> None:
    """Keep some of it for the next large body, instead of giving it back to the system after each.

    The system clears each page that it gives out, which is a quarter of what a body of a megabyte costs us. Only glibc
    can be told so; others do as they please.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING_BYTES)
