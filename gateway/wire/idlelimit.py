"""How long an unused connection to one server may be kept: below the server's own limit, which it rarely tells.

What a server tells (`Keep-Alive: timeout=N`) is believed. What it does is learned from: two connections that it closed
after the same time of rest show its limit, and a connection that was closed just as it was reused shows that ours is
too long. Both may be a restart instead, so what was learned is forgotten slowly. Pure: the time is passed in.
"""

from __future__ import annotations

import math
from typing import Final

_SHARE: Final = 0.8
"""Of a limit that was seen."""
_ALIKE: Final = 0.15
"""Two rests that differ by a smaller share ended for the same reason."""
_APART_S: Final = 0.5
"""Closings within so long of each other are one event, such as a restart."""
_SHRINK: Final = 0.7
_LEAST_S: Final = 0.2
"""What was only learned never leads below this."""
_FORGET_EVERY_S: Final = 600.0
_GROW: Final = 1.25


class IdleLimit:
    """The limit for one server. seconds: what it is now."""

    __slots__ = ("_changed_at", "_configured_s", "_learned_s", "_seen_at", "_seen_s", "_told_s", "seconds")

    def __init__(self, configured_s: float) -> None:
        self._configured_s = configured_s
        self._told_s = math.inf
        self._learned_s = math.inf
        self._changed_at = -math.inf
        self._seen_s = -math.inf
        """The rest after which the server last closed a connection, and when that was."""
        self._seen_at = -math.inf
        self.seconds = configured_s

    def told(self, timeout_s: float) -> None:
        """The server has said after how long it closes; a second less, or half of it, is on the safe side."""
        self._told_s = max(timeout_s - 1.0, timeout_s / 2)
        self._derive()

    def closed(self, rest_s: float, now: float) -> None:
        """The server closed a connection that had been unused for `rest_s`."""
        first = now - self._seen_at > _APART_S
        alike = abs(rest_s - self._seen_s) <= _ALIKE * max(rest_s, self._seen_s)
        if first and alike and rest_s <= self.seconds:
            self._learn(_SHARE * min(rest_s, self._seen_s), now)
        if first:
            self._seen_s = rest_s
            self._seen_at = now

    def stale(self, now: float) -> None:
        """The server closed a connection just as it was reused."""
        if now - self._changed_at > _APART_S:
            self._learn(self.seconds * _SHRINK, now)

    def forget(self, now: float) -> None:
        """Give back a little of what was learned, if nothing has confirmed it for a while."""
        if self._learned_s < self._configured_s and now - self._changed_at >= _FORGET_EVERY_S:
            self._changed_at = now
            self._learned_s *= _GROW
            self._derive()

    def _learn(self, seconds: float, now: float) -> None:
        self._learned_s = max(seconds, _LEAST_S)
        self._changed_at = now
        self._derive()

    def _derive(self) -> None:
        self.seconds = min(self._configured_s, self._told_s, self._learned_s)
