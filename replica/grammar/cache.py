"""A bounded cache of compiled grammars, in a form that takes the place of an engine's plain dictionary.

The step thread uses it, so nothing here frees a grammar: one of 140 MB takes 5 ms to free, and 25 to 50 ms while a
compile thread allocates from the same arena. What leaves the cache waits until `let_go` is called by another thread.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any


class GrammarCache(OrderedDict[Hashable, Any]):
    """A dictionary that gives up what was used longest ago when the sizes of its values exceed `most_bytes`."""

    def __init__(self, most_bytes: int, size_of: Callable[[Any], int], in_use: Callable[[Any], bool]) -> None:
        """`size_of` gives bytes and must be quick; `in_use`: whether anybody but the cache would free the value."""
        super().__init__()
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._in_use = in_use
        self._sizes: dict[Hashable, int] = {}
        self._given_up: deque[Any] = deque()
        self.bytes = 0

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of `key`, which counts as used now."""
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def __setitem__(self, key: Hashable, value: Any) -> None:
        self.pop(key, None)
        size = self._size_of(value)
        if size > self._most_bytes:
            self._given_up.append(value)
            return
        super().__setitem__(key, value)
        self._sizes[key] = size
        self.bytes += size
        while self.bytes > self._most_bytes:
            del self[next(iter(self))]

    def __delitem__(self, key: Hashable) -> None:
        self._given_up.append(self[key])
        super().__delitem__(key)
        self.bytes -= self._sizes.pop(key)

    def pop(self, key: Hashable, default: Any = None) -> Any:
        """Remove `key` and return its value, or `default`."""
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._given_up.extend(self.values())
        super().clear()
        self._sizes.clear()
        self.bytes = 0

    def let_go(self) -> None:
        """Free what has left the cache, away from the step thread. What is still in use waits for the next time."""
        for _ in range(len(self._given_up)):
            try:
                value = self._given_up.popleft()
            except IndexError:  # another compile thread does the same
                return
            if self._in_use(value):
                self._given_up.append(value)
