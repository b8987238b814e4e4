"""The `Date` of our own answers, which is their origin's to give (RFC 9110 section 6.6.1): spelled once a second."""

from collections.abc import Callable
from email.utils import formatdate


class DateLine:
    """See the module. `time` gives seconds since 1970."""

    __slots__ = ("_line", "_second", "_time")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._second = -1
        self._line = b""

    def line(self) -> bytes:
        """The header line, CRLF included."""
        second = int(self._time())
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
        return self._line
