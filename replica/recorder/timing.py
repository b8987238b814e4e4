"""Timers on single objects: a method shadowed on the instance, so that other instances pay nothing.

The shadow holds its object weakly. Engines freeze the garbage collector, and a cycle would keep every finished
request's matcher for ever.
"""

import time
import weakref
from typing import Any

from replica.recorder.recorder import StepRecorder

_now = time.perf_counter


def shadow(recorder: StepRecorder, owner: Any, method: str, rid: str, kind: int) -> None:
    """Time `owner.method` as a hook of `rid`; `kind` is an index into `KINDS`."""
    function = getattr(type(owner), method)
    ref = weakref.ref(owner)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = _now()
        recorder.current = (rid, kind, start)
        try:
            return function(ref(), *args, **kwargs)
        finally:
            recorder.current = None
            recorder.hooks.append((rid, kind, (_now() - start) * 1e6))

    setattr(owner, method, timed)
