"""Where a chunked body stands that is passed on as it comes: between two chunks, within one, or at its end.

The quick way of the usual chunk: size, data and nothing else. What has extensions, trailers or a size line in two reads
is left to chunked.py, which can also be asked how to go on here. Hot: once per read of every
stream; plain comparisons of bytes, which mypyc compiles to machine code.
"""

from typing import Final

COMPLETE: Final = -1
"""The body has ended where the data ends."""
BROKEN: Final = -2
"""A chunk does not end where its size says."""
UNUSUAL: Final = -3
"""`unusual(result)` is where something begins that this leaves to others, between two chunks."""


def walk(data: bytes, left: int) -> int:
    """Follow the chunks in `data`, whose first `left` bytes belong to one that has begun, its CRLF included.

    Returns how many bytes of the last one are still to come, 0 between two; or one of the above.
    """
    size = len(data)
    if left > 0:
        if left <= size:
            if data[left - 1] != _LF or (left > 1 and data[left - 2] != _CR):
                return BROKEN
        elif left == size + 1 and data[size - 1] != _CR:
            return BROKEN
    at = left
    while at < size:
        start = at
        length = 0
        while True:
            if at == size or at - start > _MAX_DIGITS:
                return UNUSUAL - start
            digit = data[at]
            at += 1
            if 48 <= digit <= 57:
                length = length * 16 + digit - 48
            elif 97 <= digit <= 102:
                length = length * 16 + digit - 87
            elif 65 <= digit <= 70:
                length = length * 16 + digit - 55
            elif digit == _CR:
                break
            else:
                return UNUSUAL - start
        if at - start < 2 or at == size or data[at] != _LF:
            return UNUSUAL - start
        at += 1
        if length == 0:
            return COMPLETE if size == at + 2 and data[at] == _CR and data[at + 1] == _LF else UNUSUAL - start
        at += length + 2
        if at <= size:
            if data[at - 1] != _LF or data[at - 2] != _CR:
                return BROKEN
        elif at == size + 1 and data[size - 1] != _CR:
            return BROKEN
    return at - size


def unusual(result: int) -> int:
    """The place that a result below BROKEN tells of."""
    return UNUSUAL - result


_CR: Final = 13
_LF: Final = 10
_MAX_DIGITS: Final = 12
