"""A few threads that compile grammars and give way to the step thread.

Linux schedules threads one by one: a thread that makes itself nice is nice alone. Compilers that can use several
threads must be told to use one, or their own threads are not.
"""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

# About a tenth of a core against one busy thread of normal priority, and a whole core when it is idle.
COMPILE_NICENESS = 10
# A compile thread that runs Python keeps the step thread waiting for the GIL for this long at most; Python's own 5 ms
# is a whole step.
_SWITCH_INTERVAL_S = 0.0005


def compile_pool(threads: int) -> ThreadPoolExecutor:
    """An executor of `threads` niced threads, in a process that lets go of the GIL quickly."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    return ThreadPoolExecutor(threads, thread_name_prefix="steplane-compile", initializer=_be_nice)


def _be_nice() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), COMPILE_NICENESS)
