"""A bounded cache of compiled grammars, in a form that takes the place of an engine's plain dictionary."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any


class GrammarCache(OrderedDict[Hashable, Any]):
    """A dictionary that forgets what was used longest ago when the sizes of its values exceed `most_bytes`."""

    def __init__(self, most_bytes: int, size_of: Callable[[Any], int]) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._size_of = size_of
        self._sizes: dict[Hashable, int] = {}
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
            return
        super().__setitem__(key, value)
        self._sizes[key] = size
        self.bytes += size
        while self.bytes > self._most_bytes:
            self.pop(next(iter(self)))

    def __delitem__(self, key: Hashable) -> None:
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
        super().clear()
        self._sizes.clear()
        self.bytes = 0
