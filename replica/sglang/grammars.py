"""Timers on single grammar objects and on stop checks: set on the instance, so that plain requests pay nothing.

A request's grammar is its own object (a copy of the cached one), whose methods are timed in the request's name.
"""

import time
from collections.abc import Callable
from typing import Any

from replica.recorder.recorder import StepRecorder
from replica.recorder.records import KIND_INDEX, HookKind
from replica.recorder.timing import shadow

_FILL, _ACCEPT, _STOP = (KIND_INDEX[kind] for kind in (HookKind.grammar_fill, HookKind.grammar_accept, HookKind.stop))
_now = time.perf_counter
# A native fill of the whole batch that takes longer is done row by row every so often, to see whose it is.
_PROBE_OVER_US = 200.0
_PROBE_EVERY = 8
# Kept on the grammar object: whose it is.
OWNER = "_steplane_rid"


class GrammarTimers:
    """Times grammar objects for one recorder."""

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self._until_probe = 0

    def own(self, grammar: Any, rid: str) -> None:
        """Time `grammar` as the one of request `rid`."""
        if getattr(grammar, OWNER, None) == rid:
            return
        setattr(grammar, OWNER, rid)
        shadow(self._recorder, grammar, "fill_vocab_mask", rid, _FILL)
        shadow(self._recorder, grammar, "accept_token", rid, _ACCEPT)
        kind = type(grammar)
        if "fill_vocab_mask_batched" in kind.__dict__:
            # The backend fills many rows in one native call.
            grammar.fill_vocab_mask_batched = self._batched(kind.fill_vocab_mask_batched)

    def time_stop(self, req: Any) -> None:
        """Time the stop strings and stop regexes of `req`; call it only where there are some."""
        shadow(self._recorder, req, "_check_str_based_finish", req.rid, _STOP)

    def _batched(self, native: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """One native call for all rows is shared alike; after a dear one, a step now and then goes row by row."""
        recorder = self._recorder

        def fill_all(entries: Any, vocab_mask: Any) -> None:
            if self._until_probe == 1 or len(entries) == 1:
                self._until_probe = 0
                for entry in entries:
                    entry.grammar.fill_vocab_mask(vocab_mask, entry.row)
                return
            start = _now()
            native(entries, vocab_mask)
            us = (_now() - start) * 1e6
            for entry in entries:
                recorder.hooks.append((getattr(entry.grammar, OWNER, None), _FILL, us / len(entries)))
            if self._until_probe:
                self._until_probe -= 1
            elif us > _PROBE_OVER_US:
                self._until_probe = _PROBE_EVERY

        return fill_all
