"""The head of a request, as far as rules ask for it: one header, or one parameter of the query.

Nothing is read before a rule asks. Clients send the same head with every request, and the data plane has one object for
it, so what was read of one is kept with the reader.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol
from urllib.parse import parse_qsl

_KEPT: Final = 1024
"""Heads whose value is remembered; then all are forgotten."""
_MOST_PARAMETERS: Final = 100


class Head(Protocol):
    """What is asked of a head: `target` is that of the request line, with its query.

    base: the head that this one is a passing variant of; None where it will come again.
    """

    @property
    def target(self) -> bytes: ...

    @property
    def base(self) -> "Head | None": ...

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its lower-case name."""


class PaperHead:
    """A head that nobody sent, for a decision on paper. `headers`: names in any case, and values."""

    base: Head | None = None

    def __init__(self, target: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.target = target.encode("utf-8")
        self._headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, by its lower-case name."""
        return next((value for key, value in self._headers if key == name), None)


class Reader:
    """Reads one thing of heads, and remembers it for those that come again. None: it is not there."""

    __slots__ = ("_known", "_read")

    def __init__(self, read: Callable[[Head], str | None]) -> None:
        self._read = read
        self._known: dict[Head, str | None] = {}

    def __call__(self, head: Head | None) -> str | None:
        """The value, or None where there is none, or no head."""
        if head is None:
            return None
        known = self._known
        if head in known:
            return known[head]
        value = self._read(head)
        if head.base is None:
            if len(known) >= _KEPT:
                known.clear()
            known[head] = value
        return value


def header_reader(name: str) -> Reader:
    """Reads a header, by its name in any case."""
    key = name.lower().encode("ascii")

    def read(head: Head) -> str | None:
        value = head.header(key)
        return None if value is None else value.decode("latin-1")

    return Reader(read)


def query_reader(name: str) -> Reader:
    """Reads a parameter of the query, percent-decoded; of several with the name, the first."""

    def read(head: Head) -> str | None:
        query = head.target.partition(b"?")[2]
        if not query:
            return None
        try:
            pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError:
            return None  # more parameters than anybody sends by intent
        return next((value for key, value in pairs if key == name), None)

    return Reader(read)
