"""The samples of one request (n > 1) under ids that begin with the request's own.

SGLang 0.5.23 gives every sample a random id in the process that speaks HTTP (`TokenizerManager._handle_batch_request`,
by `GenerateReqInput.regenerate_rid`), and the id of the request never reaches the scheduler: whatever the samples cost
would be nobody's. Here a sample's id is that of its prompt, an underscore and a number that is never used twice, of one
length because the scheduler takes an abort for every id that begins with the one it names. The pass that fills the
prefix cache for them counts as one of them.
That process loads plugins before it has imported what is to be wrapped, so this waits until the arguments are resolved.
"""

import functools
import logging
import pkgutil
from collections.abc import Callable
from itertools import count
from typing import Any

log = logging.getLogger("steplane")

RESOLVED = "sglang.srt.server_args.ServerArgs.resolve_once"
_REQUEST = "sglang.srt.managers.io_struct.GenerateReqInput"
_METHOD = "regenerate_rid"


def resolved(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Around `ServerArgs.resolve_once`, in whichever process it is called first."""
    original(*args, **kwargs)
    try:
        name_samples(pkgutil.resolve_name(_REQUEST))
    except Exception as error:
        log.warning("steplane: this SGLang has no %s.%s (%s): what samples cost is nobody's", _REQUEST, _METHOD, error)


def name_samples(request: Any) -> None:
    """Have `request.regenerate_rid` (a class's) make ids that begin with the one before; done once for each class."""
    original = getattr(request, _METHOD)
    if getattr(original, "_steplane", False):
        return
    numbers = count()

    @functools.wraps(original)
    def regenerate_rid(self: Any) -> Any:
        before = self.rid
        rid = original(self)
        if isinstance(before, str) and isinstance(rid, str):
            self.rid = rid = f"{before}_{next(numbers):010d}"
        return rid

    regenerate_rid._steplane = True  # type: ignore[attr-defined]
    setattr(request, _METHOD, regenerate_rid)
