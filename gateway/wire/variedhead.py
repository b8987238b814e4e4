"""The last head of a connection whose requests each bring a line of their own (a trace id): recognised by its pieces.

Such heads are equal but for the values of those lines and the digits of the length. Comparing the pieces between them
takes a tenth of the time of taking the head apart. Decides nothing about framing: a line that does is never varied.
"""

import re
from typing import Final

from gateway.wire.forwarding import Forwarding
from gateway.wire.message import KEPT_BYTES, MAX_DIGITS, Headers, length_place
from gateway.wire.requesthead import RequestHead

_VALUE: Final = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?").fullmatch
_LENGTH: Final = -1


class VariedHead:
    """What two such heads have in common. Matches nothing before `keep`."""

    __slots__ = ("_base", "_ends", "_forwarding", "_names", "_pieces")

    def __init__(self, forwarding: Forwarding | None = None) -> None:
        self._forwarding = forwarding
        self._base: RequestHead | None = None
        self._names: list[bytes] = []
        """Of the varied lines, with their colon and what follows up to the value."""
        self._pieces: list[bytes] = []
        self._ends: list[int] = []
        """What stands behind each piece but the last: an index into `_names`, or the length."""

    def keep(self, data: bytes, head: RequestHead) -> None:
        """Remember a head that came as `data`; one without varied lines, or a large one, is no concern of ours."""
        self._base = None
        if head.base is None or len(data) > KEPT_BYTES or len(set(head.new_lines)) < len(head.new_lines):
            return  # of lines that are equal, only the first would be found
        places: list[tuple[int, int, int]] = []
        names: list[bytes] = []
        for line in head.new_lines:
            name, _, value = line.partition(b":")
            prefix = line[: len(name) + 1 + len(value) - len(value.lstrip(b" \t"))]
            start = data.find(b"\r\n%b\r\n" % line) + 2
            if start == 1:
                return
            places.append((start + len(prefix), start + len(line), len(names)))
            names.append(prefix)
        start, end = length_place(data)
        if start < 0:
            return
        places.append((start, end, _LENGTH))
        places.sort()
        self._pieces = []
        self._ends = []
        at = 0
        for start, end, what in places:
            self._pieces.append(data[at:start])
            self._ends.append(what)
            at = end
        self._pieces.append(data[at:])
        self._names = names
        self._base = head.base

    def match(self, data: bytes) -> tuple[RequestHead | None, int, int]:
        """The head at the beginning of `data`, where it ends, and its length; None, -1, -1 if it is another."""
        base = self._base
        if base is None:
            return None, -1, -1
        at = 0
        length = -1
        lines = [base.lines]
        request_id = base.request_id
        trail = base.trail
        new: Headers = []
        for index, piece in enumerate(self._pieces):
            end = at + len(piece)
            if data[at:end] != piece:
                return None, -1, -1
            at = end
            if index == len(self._ends):
                break
            end = data.find(b"\r", at)
            if end < 0:
                return None, -1, -1
            value = data[at:end]
            what = self._ends[index]
            if what == _LENGTH:
                if not value.isdigit() or len(value) > MAX_DIGITS:
                    return None, -1, -1
                length = int(value)
            else:
                if not _VALUE(value):
                    return None, -1, -1
                prefix = self._names[what]
                name = prefix[: prefix.index(b":")]
                new.append((name, value))
                lower = name.lower()
                if lower == b"x-request-id":
                    request_id = value
                elif trail is not None and self._forwarding is not None and self._forwarding.concerns(lower):
                    trail = trail.and_also([(lower, value)])
                else:
                    lines.append(b"%b%b\r\n" % (prefix, value))
            at = end
        return base.varied(b"".join(lines), request_id, trail, new, ()), at, length
