"""A bounded memory for what was worked out of a text, keyed by the text itself: equal bytes, and nothing else, hit."""

from typing import Generic, TypeVar

Value = TypeVar("Value")


class TextCache(Generic[Value]):
    """Remembers the most recently used values within a bound on the bytes of their keys.

    Two generations instead of an order of use: what is asked for moves into the young one, and when that is full the
    old one is forgotten. So a hit costs one or two lookups, and nothing used lately is lost.
    """

    __slots__ = ("_bytes", "_half", "_old", "_young")

    def __init__(self, max_bytes: int) -> None:
        self._half = max_bytes // 2
        self._bytes = 0
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}

    def get(self, text: bytes) -> Value | None:
        """The value for a text, or None."""
        value = self._young.get(text)
        if value is None:
            value = self._old.get(text)
            if value is not None:
                self.put(text, value)
        return value

    def put(self, text: bytes, value: Value) -> None:
        """Remembers a value; a text larger than half the bound is not kept."""
        size = len(text) + _OVERHEAD_BYTES
        if size > self._half:
            return
        if self._bytes + size > self._half:
            self._old, self._young, self._bytes = self._young, {}, 0
        self._young[text] = value
        self._bytes += size

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())


_OVERHEAD_BYTES = 4096
"""What an entry holds beside its key, about: the costs of a grammar on all backends, for a few kinds of requests."""
