"""A few threads that compile grammars and give way to the step thread.

Linux schedules threads one by one: a thread that makes itself nice is nice alone. Compilers that can use several
threads must be told to use one, or their own threads are not.
"""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

# A third of the weight of a normal thread. Nicer threads all but stop on a machine that is busy with other things, and
# those who wait for a grammar wait for ever.
COMPILE_NICENESS = 5
# A compile thread that runs Python keeps the step thread waiting for the GIL for this long at most; Python's own 5 ms
# is a whole step.
_SWITCH_INTERVAL_S = 0.0005


def compile_pool(threads: int) -> ThreadPoolExecutor:
    """An executor of `threads` niced threads, in a process that lets go of the GIL quickly."""
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    return ThreadPoolExecutor(threads, thread_name_prefix="steplane-compile", initializer=_be_nice)


def _be_nice() -> None:
    with contextlib.suppress(OSError, AttributeError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + COMPILE_NICENESS)
