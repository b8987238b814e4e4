"""Telling others: in which order callbacks run. Owns nothing of what they are told."""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import ParamSpec

import structlog

_log = structlog.get_logger("steplane.state")

Args = ParamSpec("Args")


class Delivery:
    """Runs callbacks one after the other, also when one causes the next: that one waits until the first has ended."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False

    def tell(self, callbacks: Iterable[Callable[Args, None]], *args: Args.args, **kwargs: Args.kwargs) -> None:
        """Call each, after all that was told before. Never raises: what a callback raises is logged."""
        self._waiting.extend(partial(callback, *args, **kwargs) for callback in callbacks)
        if self._running:
            return
        self._running = True
        try:
            while self._waiting:
                self._call(self._waiting.popleft())
        finally:
            self._running = False

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            # The store goes on for the others: one watcher's fault must not cost a trip.
            _log.exception("a watcher of shared state failed")
