"""The ids under which the scheduler knows requests, so that what they cost is known to be theirs.

Both are settled in the process that speaks HTTP (SGLang 0.5.23, managers/tokenizer_manager.py):

    samples   of one request (n > 1) get random ids (`GenerateReqInput.regenerate_rid`) and the id of the request never
              reaches the scheduler. Here a sample's id is that of its prompt, an underscore and a number that is never
              used twice, of one length because the scheduler takes an abort for every id that begins with the one it
              names. The pass that fills the prefix cache for them counts as one of them.
    header    not every API has a field for the id (`/v1/messages` has none). Here a request without an id of its own
              gets the one in its `x-steplane-rid` header.

That process loads plugins before it has imported what is to be wrapped, so this waits until its arguments are resolved.
"""

import functools
import logging
import pkgutil
from collections.abc import Callable
from itertools import count
from typing import Any

log = logging.getLogger("steplane")

RESOLVED = "sglang.srt.server_args.ServerArgs.resolve_once"
HEADER = "x-steplane-rid"
_REQUEST = "sglang.srt.managers.io_struct.GenerateReqInput"
_MANAGER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
_LONGEST = 128


def resolved(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Around `ServerArgs.resolve_once`, in whichever process it is called first."""
    original(*args, **kwargs)
    try:
        request = pkgutil.resolve_name(_REQUEST)
        name_samples(request)
        take_header(pkgutil.resolve_name(_MANAGER), request)
    except Exception as error:
        log.warning("steplane: this SGLang makes its ids otherwise (%s): some requests' cost is nobody's", error)


def name_samples(request: Any) -> None:
    """Have `request.regenerate_rid` (a class's) make ids that begin with the one before; done once for each class."""
    numbers = count()

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def regenerate_rid(self: Any) -> Any:
            before = self.rid
            rid = original(self)
            if isinstance(before, str) and isinstance(rid, str):
                self.rid = rid = f"{before}_{next(numbers):010d}"
            return rid

        return regenerate_rid

    _wrap(request, "regenerate_rid", wrapped)


def take_header(manager: Any, request: Any) -> None:
    """Have `manager.generate_request` (a class's) look for the id of a `request` in the header; done once."""

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def generate_request(self: Any, obj: Any, http: Any = None) -> Any:
            if isinstance(obj, request) and obj.rid is None and http is not None:
                rid = http.headers.get(HEADER)
                if rid and len(rid) <= _LONGEST:
                    obj.rid = rid
            return original(self, obj, http)

        return generate_request

    _wrap(manager, "generate_request", wrapped)


def _wrap(owner: Any, name: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    if getattr(original, "_steplane", False):
        return
    around = functools.wraps(original)(wrapped(original))
    around._steplane = True  # type: ignore[attr-defined]
    setattr(owner, name, around)
