"""The quick way to what a chat body says beside its messages: applications send bodies that differ in these alone.

A body that begins and ends as one before did has its messages in between; if those read as a list of texts, all else is
as it was, and neither scanned nor hashed again. Whether the messages of the one before really stood there, and not some
text that looked like them, is tried once, with other messages in their place.
"""

from typing import Final, Generic, TypeVar

from gateway.hookcost.form import stands_at, text_bytes_of

Value = TypeVar("Value")

_KEY_BYTES: Final = 16
_MOST_ALIKE: Final = 8
_MOST_DECLINED: Final = 1000
_OVERHEAD_BYTES: Final = 1024


class _Template(Generic[Value]):
    """What stands before and behind the messages, and what is remembered of bodies like that."""

    __slots__ = ("after", "before", "value")

    def __init__(self, before: bytes, after: bytes, value: Value) -> None:
        self.before = before
        self.after = after
        self.value = value


class Templates(Generic[Value]):
    """Templates of bodies, within a bound on their bytes. Found by the body's last bytes, or its first.

    Of templates with the same last bytes a few are kept; when many had no place, or too many bytes are kept, all are
    forgotten, and those in use are soon back.
    """

    __slots__ = ("_by_end", "_by_start", "_bytes", "_declined", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_end: dict[bytes, list[_Template[Value]]] = {}
        self._by_start: dict[bytes, list[_Template[Value]]] = {}
        """Of those with hardly anything behind the messages."""
        self._bytes = 0
        self._declined = 0

    def match(self, body: bytes) -> tuple[Value | None, int]:
        """What is remembered of bodies like this one, and the UTF-8 bytes of its messages' texts; or None and -1."""
        alike = self._by_end.get(body[-_KEY_BYTES:])
        if alike is None:
            alike = self._by_start.get(body[:_KEY_BYTES])
            if alike is None:
                return None, -1
        size = len(body)
        for template in alike:
            start = len(template.before)
            end = size - len(template.after)
            if start < end and body[:start] == template.before and body[end:] == template.after:
                prompt_bytes = text_bytes_of(body[start:end])
                if prompt_bytes >= 0:
                    return template.value, prompt_bytes
        return None, -1

    def keep(self, body: bytes, start: int, end: int, value: Value) -> None:
        """Remember a value for all bodies like this one, whose messages seem to stand from `start` to `end`."""
        before, after = body[:start], body[end:]
        if len(after) >= _KEY_BYTES:
            table, key = self._by_end, after[-_KEY_BYTES:]
        elif len(before) >= _KEY_BYTES:
            table, key = self._by_start, before[:_KEY_BYTES]
        else:
            return
        size = len(before) + len(after) + _OVERHEAD_BYTES
        alike = table.get(key)
        if self._bytes + size > self._max_bytes or self._declined > _MOST_DECLINED:
            self._clear()
            alike = None
        if alike is None:
            alike = table[key] = []
        elif len(alike) >= _MOST_ALIKE:
            self._declined += 1
            return
        if stands_at(body, start, end):
            alike.append(_Template(before, after, value))
            self._bytes += size

    def _clear(self) -> None:
        self._by_end.clear()
        self._by_start.clear()
        self._bytes = self._declined = 0
