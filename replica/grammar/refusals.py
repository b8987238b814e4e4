"""Grammars that took too long are refused for a while: at once, without trying again, and not for ever."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

_FIRST_S, _LONGEST_S = 60.0, 3600.0
_REMEMBERED = 4096


@dataclass(slots=True)
class _Refusal:
    until_s: float
    pause_s: float
    reason: str


class Refusals:
    """What is refused, until when, and why. Used under the GIL from the step thread and compile threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: OrderedDict[Hashable, _Refusal] = OrderedDict()

    def refuse(self, key: Hashable, reason: str) -> None:
        """Refuse `key` for a minute, and twice as long each time it happens again, up to an hour."""
        before = self._refused.pop(key, None)
        pause_s = _FIRST_S if before is None else min(before.pause_s * 2, _LONGEST_S)
        self._refused[key] = _Refusal(self._clock() + pause_s, pause_s, reason)
        while len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)

    def reason(self, key: Hashable) -> str | None:
        """Why `key` is refused now; None: it is not."""
        refusal = self._refused.get(key)
        if refusal is None or self._clock() >= refusal.until_s:
            return None
        return refusal.reason

    def offended_before(self, key: Hashable) -> bool:
        """Whether `key` has taken too long at some time."""
        return key in self._refused

    def forgive(self, key: Hashable) -> None:
        """`key` was compiled in time after all."""
        self._refused.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._refused.clear()
