"""Dying with the parent process: a replica that was started by something must not outlive it."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_CHECK_S = 0.5


def signal_on_parent_death() -> None:
    """On Linux ask the kernel for SIGTERM when the parent's thread ends; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def watch_parent(parent: int, ended: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    """Call `ended` once the process is no child of `parent` any more: the kernel's signal can be missed or unknown."""
    if os.getppid() != parent:
        ended()
    else:
        loop.call_later(_CHECK_S, watch_parent, parent, ended, loop)
