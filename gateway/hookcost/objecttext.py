"""The text of a JSON object with single fields changed, and every other byte as it was.

Where a field stands is found without parsing what is in the others: 0.4 µs for each field, and a millisecond for 3 MB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)
"""What `fields_of` raises for a text that is no JSON object."""

_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BEFORE_VALUE = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_BEHIND_VALUE = re.compile(rb"[ \t\r\n]*([,}])")
_OPEN = re.compile(rb"[ \t\r\n]*\{")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a field's name begins, and its value begins and ends."""

    name: int
    start: int
    end: int


def fields_of(text: bytes) -> dict[str, bytes]:
    """The fields of an object and the text of their values; of fields of one name the last. Raises `UNREADABLE`."""
    return {name: bytes(value) for name, value in _decode(text).items()}


def changed(text: bytes, fields: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> bytes:
    """`text` with other values for some fields; None: without the field. New ones are put behind all others.

    fields: those of `text`. Where a name stands twice, the new value goes behind all others, too, and `null` in the
    place of none: the last one counts for every engine.
    """
    places = _places(text, fields)
    if places is None:
        return _appended(text, {name: b"null" if value is None else value for name, value in changes.items()})
    pieces: list[bytes] = []
    end = start = places[0].name if places else 0
    for name, place in zip(fields, places, strict=True):
        value = changes.get(name, b"")
        if value is not None:
            if pieces:
                pieces.append(text[end : place.name])  # the comma, and what space there is
            pieces += (text[place.name : place.start], value or text[place.start : place.end])
        end = place.end
    spelled = b"%b%b%b" % (text[:start], b"".join(pieces), text[end:])
    new = {name: value for name, value in changes.items() if value is not None and name not in fields}
    return _appended(spelled, new)


def _places(text: bytes, fields: Mapping[str, bytes]) -> list[_Place] | None:
    """Where each of the fields stands, in their order; None where a name stands twice."""
    match = _OPEN.match(text)
    assert match is not None
    at = match.end()
    places: list[_Place] = []
    last = b"{"
    for value in fields.values():
        name = _BEFORE_VALUE.match(text, at)
        # Of a second field of some name the value is another, or there is one field more than names.
        if last == b"}" or name is None or not text.startswith(value, name.end()):
            return None
        end = name.end() + len(value)
        behind = _BEHIND_VALUE.match(text, end)
        if behind is None:
            return None
        places.append(_Place(name.start(1), name.end(), end))
        last, at = behind[1], behind.end()
    return places if last == b"}" or not places else None


def _appended(text: bytes, fields: Mapping[str, bytes]) -> bytes:
    """`text` with fields behind all others."""
    if not fields:
        return text
    end = text.rindex(b"}")
    empty = text[:end].rstrip().endswith(b"{")
    added = b",".join([b"%b:%b" % (msgspec.json.encode(name), value) for name, value in fields.items()])
    return b"%b%b%b%b" % (text[:end], b"" if empty else b",", added, text[end:])
