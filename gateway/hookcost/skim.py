"""A large body in slices: its parameters are kept, its prompt is measured and skipped, and nothing takes long at a
time.

`orjson` holds the interpreter for as long as a body is large; a body of 40 MiB of images would stop every other
request for tens of milliseconds. So a large body is scanned for the ends of its top-level values only, a slice at a
time, and just the small values that can carry parameters are parsed. A value is never judged by its looks: what is
skipped is known by its key to be prompt, or unknown to every engine. Owns that scan; knows no parameter's meaning.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass, field

import orjson

from gateway.hookcost.body import TOO_DEEP
from gateway.hookcost.classification import Refusal
from gateway.hookcost.prompt import BYTES_PER_TOKEN

MAX_PARAMETER_BYTES = 256 * 1024
"""Parameters (grammars and tools with them) of more bytes in all make the request heavy by definition."""
MAX_CONTAINERS = 20_000
"""So do more objects and arrays among them: that many take about a millisecond to parse."""
MAX_FIELDS = 10_000
"""A large body with more fields than this (top-level keys, repeated ones too) is refused: no request needs them."""
_SLICE_BYTES = 1 << 20
_SLICE_TOKENS = 500
_FIELD_TOKENS = 5
"""A field takes as long as so many marks."""
_TOKEN_BYTES = 4096
"""So many bytes of a string take as long as a mark."""
_MAX_NESTING = 1_024
"""As `orjson` has it."""
_SLICE_TEXT_BYTES = 128 * 1024
_REGEX_BYTES = 64 * 1024
_PIECE_BYTES = 24 * 1024
_PIECE_DEPTH = 4
"""Each level is scanned again; what is left below it is parsed at once."""
_PIECE_CONTAINERS = 300
"""Objects and arrays are what takes time to parse; a long list of numbers or texts is parsed at once."""
_FIELD_BYTES = 512
"""No field of any engine has a longer name, be each of its characters escaped."""
_WINDOW_BYTES = 32 * 1024
_SPARSE_BYTES = 64
"""Where a quote stands further from the last one, finding it takes no longer than walking up to it."""

PROMPT_KEYS = frozenset(
    (
        "audio_data",
        "documents",
        "image_data",
        "input",
        "input_embeds",
        "input_ids",
        "instances",
        "instructions",
        "messages",
        "mm_hashes",
        "prompt",
        "prompt_embeds",
        "system",
        "token_ids",
        "video_data",
    )
)
"""Fields that carry prompt and no parameter; `messages` may carry tools, which are looked for."""
_SPACE = re.compile(rb"[ \t\r\n]*")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_STRING_REST = re.compile(rb'[^"\\]*(?:\\(?s:.)[^"\\]*)*')
_SCALAR = re.compile(rb"[^,}\]\s]{1,400}")
_TOOLS = b'"tools"'


@dataclass(slots=True)
class Skimmed:
    """What is left of a large body.

    data:         the parameters, parsed; prompt fields are left out.
    prompt_bytes: bytes of prompt, without inline images and the like.
    batch:        prompts in the body.
    heavy:        why the request is heavy by definition, if it is.
    """

    data: dict[str, object] = field(default_factory=dict)
    prompt_bytes: int = 0
    batch: int = 1
    heavy: str | None = None


@dataclass(slots=True)
class _Value:
    """Where a value ends, and what was seen on the way."""

    end: int = 0
    text_bytes: int = 0
    items: int = 0
    tools: bool = False


@dataclass(slots=True)
class _Pace:
    """Marks looked at since the last turn."""

    tokens: int = 0


class _BrokenError(Exception):
    """The body is no JSON object; the first argument is the byte at which that shows, the second what to say of it."""


def skim(body: bytes, prompt_text: bool) -> Generator[None, None, Skimmed | Refusal]:
    """Scans a body; yields at least once a millisecond or so.

    prompt_text: the field `text` is prompt, as in SGLang's /generate, and no format, as in /v1/responses.
    """
    found = Skimmed()
    pace = _Pace()
    kept: dict[str, tuple[int, int]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    fields = 0
    try:
        at = _space(body, 0)
        if body[at : at + 1] == b"[":
            raise _BrokenError(at, "The request body must be a JSON object, but is an array.")
        if body[at : at + 1] != b"{":
            raise _BrokenError(at)
        at = _space(body, at + 1)
        while body[at : at + 1] != b"}":
            fields += 1
            if fields > MAX_FIELDS:
                message = f"The request body has more than {MAX_FIELDS:,} fields, which no request needs."
                return Refusal(400, "too_many_fields", message)
            pace.tokens += _FIELD_TOKENS
            if pace.tokens > _SLICE_TOKENS:
                pace.tokens = 0
                yield
            before = at
            key, at = yield from _key(body, at, _FIELD_BYTES)
            value = _Value()
            yield from _scan(body, at, value, key == "messages", pace)
            pace.tokens += min(value.end - before, _SLICE_BYTES) // _TOKEN_BYTES
            if key in PROMPT_KEYS or (key == "text" and prompt_text):
                sizes[key] = (value.text_bytes, value.items)
                if value.tools:
                    found.heavy = f"tools in single messages of a body of {len(body):,} bytes"
            else:
                kept[key] = (at, value.end)
            at = _space(body, value.end)
            if body[at : at + 1] == b",":
                at = _space(body, at + 1)
            elif body[at : at + 1] != b"}":
                raise _BrokenError(at)
        end = _space(body, at + 1)
        if end != len(body):
            raise _BrokenError(end)
    except _BrokenError as error:
        return _broken(error)
    found.prompt_bytes = sum(text_bytes for text_bytes, _ in sizes.values())
    found.batch = max([1, *(items for key, (_, items) in sizes.items() if key not in ("messages", "input", "system"))])
    if sum([end - start for start, end in kept.values()]) > MAX_PARAMETER_BYTES:
        found.heavy = f"request parameters of more than {MAX_PARAMETER_BYTES // 1024} KiB"
    elif sum([_containers(body, start, end) for start, end in kept.values()]) > MAX_CONTAINERS:
        found.heavy = f"request parameters of more than {MAX_CONTAINERS:,} objects and arrays"
    if found.heavy is not None:
        kept = {key: (start, end) for key, (start, end) in kept.items() if end - start <= _REGEX_BYTES // 8}
    for key, (start, end) in kept.items():
        pace.tokens += _FIELD_TOKENS
        if pace.tokens > _SLICE_TOKENS:
            pace.tokens = 0
            yield
        try:
            found.data[key] = yield from _parsed(body, start, end, 0, pace)
        except _BrokenError as error:
            return _broken(error)
    return found


def _containers(body: bytes, start: int, end: int) -> int:
    """Objects and arrays in a value; 0 for a text, whatever is in it."""
    if body[start : start + 1] == b'"':
        return 0
    return body.count(b"{", start, end) + body.count(b"[", start, end)


def _parsed(body: bytes, start: int, end: int, depth: int, pace: _Pace) -> Generator[None, None, object]:
    """The value between two places, parsed piece by piece where it is large: many small objects take longest."""
    first = body[start : start + 1]
    if end - start <= _PIECE_BYTES or depth > _PIECE_DEPTH or _containers(body, start, end) < _PIECE_CONTAINERS:
        try:
            value = orjson.loads(body[start:end])
        except orjson.JSONDecodeError as error:
            raise _BrokenError(start + error.pos) from None
        if end - start > _PIECE_BYTES // 4:
            yield
        return value
    members: dict[str, object] = {}
    elements: list[object] = []
    at = group = _space(body, start + 1)
    while at < end - 1:
        pace.tokens += 2
        if pace.tokens > _SLICE_TOKENS:
            pace.tokens = 0
            yield
        before = at
        key = ""
        if first == b"{":
            key, at = yield from _key(body, at, MAX_PARAMETER_BYTES)
        extent = _Value()
        yield from _scan(body, at, extent, False, pace)
        if extent.end - at > _PIECE_BYTES:
            _take(body, first, group, before, members, elements)
            piece = yield from _parsed(body, at, extent.end, depth + 1, pace)
            if first == b"{":
                members[key] = piece
            else:
                elements.append(piece)
            group = extent.end
        at = _space(body, extent.end)
        if at < end - 1:
            if body[at : at + 1] != b",":
                raise _BrokenError(at)
            at = _space(body, at + 1)
            if at >= end - 1:
                raise _BrokenError(at)
            if group == extent.end:
                group = at
        if at - group > _PIECE_BYTES:
            _take(body, first, group, at, members, elements)
            group = at
            yield
    _take(body, first, group, at, members, elements)
    yield
    return members if first == b"{" else elements


def _take(body: bytes, first: bytes, start: int, end: int, members: dict[str, object], elements: list[object]) -> None:
    """Parses the members or elements between two places, the last with its comma."""
    text = body[start:end].rstrip(b" \t\r\n").removesuffix(b",")
    if not text.strip():
        return
    try:
        if first == b"{":
            members.update(orjson.loads(b"{%b}" % text))
        else:
            elements.extend(orjson.loads(b"[%b]" % text))
    except orjson.JSONDecodeError as error:
        raise _BrokenError(start + max(0, error.pos - 1)) from None


def _broken(error: _BrokenError) -> Refusal:
    at, *said = error.args
    message = said[0] if said else f"The request body is not a valid JSON object (byte {at})."
    return Refusal(400, "invalid_json", message)


def _space(body: bytes, at: int) -> int:
    """The place behind white space, of which more than `_SLICE_BYTES` in a row is taken for no JSON."""
    match = _SPACE.match(body, at, at + _SLICE_BYTES)
    return match.end() if match else at


def _key(body: bytes, at: int, longest: int) -> Generator[None, None, tuple[str, int]]:
    """The key at `at`, empty where it is longer than `longest`, and the place of its value."""
    if body[at : at + 1] != b'"':
        raise _BrokenError(at)
    end = yield from _string_end(body, at)
    try:
        key = orjson.loads(body[at:end]) if end - at <= longest else ""
    except orjson.JSONDecodeError:
        raise _BrokenError(at) from None
    at = _space(body, end)
    if body[at : at + 1] != b":":
        raise _BrokenError(at)
    return key, _space(body, at + 1)


def _string_end(body: bytes, at: int) -> Generator[None, None, int]:
    """The place behind the string that begins at `at`.

    A quote ends it unless an odd number of backslashes stands before it; what else is escaped is not looked at. Where
    escaped quotes stand close together, they are walked over a window at a time, which never ends between a backslash
    and what it escapes.
    """
    search = turn = at + 1
    before = 0
    """Backslashes just before `search` that are part of no escape yet."""
    while True:
        found = body.find(b'"', search, search + _SLICE_BYTES)
        if found < 0:
            end = min(search + _SLICE_BYTES, len(body))
            backslashes = _backslashes(body, search, end)
            before = backslashes + (before if backslashes == end - search else 0)
            search = end
            if search >= len(body):
                raise _BrokenError(len(body))
            yield
            continue
        backslashes = _backslashes(body, search, found)
        if backslashes == found - search:
            backslashes += before
        if backslashes % 2 == 0:
            return found + 1
        dense = found - search < _SPARSE_BYTES
        search, before = found + 1, 0
        if dense:
            rest = _STRING_REST.match(body, search, search + _WINDOW_BYTES)
            search = rest.end() if rest is not None else search
            if body[search : search + 1] == b'"':
                return search + 1
            if search >= len(body):
                raise _BrokenError(len(body))
        if search - turn > _WINDOW_BYTES:
            turn = search
            yield


def _backslashes(body: bytes, start: int, end: int) -> int:
    """How many stand in a row before `end`, back to `start` at most."""
    if body[end - 1 : end] != b"\\" or start >= end:
        return 0
    near = max(start, end - 64)
    kept = len(body[near:end].rstrip(b"\\"))
    if kept or near == start:
        return end - near - kept
    return end - start - len(body[start:end].rstrip(b"\\"))


def _scan(body: bytes, at: int, value: _Value, messages: bool, pace: _Pace) -> Generator[None, None, None]:
    """Finds the end of the value at `at`."""
    first = body[at : at + 1]
    if first == b'"':
        value.end = yield from _string_end(body, at)
        value.text_bytes = 0 if body[at + 1 : at + 6] == b"data:" else value.end - at - 2
        return
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(body, at)
        if scalar is None:
            raise _BrokenError(at)
        value.end = scalar.end()
        return
    yield from _scan_container(body, at, value, messages, pace)


def _scan_container(body: bytes, at: int, value: _Value, messages: bool, pace: _Pace) -> Generator[None, None, None]:
    depth = 0
    start = turn = at
    while True:
        pace.tokens += 1
        if pace.tokens > _SLICE_TOKENS or at - turn > _SLICE_TEXT_BYTES:
            pace.tokens, turn = 0, at
            yield
        match = _STRUCTURE.search(body, at, at + _REGEX_BYTES)
        if match is None:
            if at + _REGEX_BYTES >= len(body):
                raise _BrokenError(len(body))
            at += _REGEX_BYTES
            yield
            continue
        at = match.end()
        mark = body[at - 1]
        if mark == 0x22:  # a string
            begin = at - 1
            at = yield from _string_end(body, begin)
            if depth == 1:
                value.items += 1
            if body[begin + 1 : begin + 6] != b"data:":
                value.text_bytes += at - begin - 2
            if messages and depth == 2 and _names_tools(body, begin, at):
                value.tools = True
        elif mark in b"{[":
            if depth == 1:
                value.items += 1
            depth += 1
            if depth >= _MAX_NESTING:
                raise _BrokenError(at, TOO_DEEP)
        else:
            depth -= 1
            if depth == 0:
                break
    value.end = at
    if body[start : start + 1] == b"[" and value.text_bytes == 0:
        numbers = body.count(b",", start, min(at, start + _SLICE_BYTES)) + 1
        value.text_bytes = round(numbers * BYTES_PER_TOKEN * max(1.0, (at - start) / _SLICE_BYTES))
        if value.items == 0:
            value.items = 1


def _names_tools(body: bytes, begin: int, end: int) -> bool:
    """Whether the string is the key `tools`, however it is escaped."""
    if end - begin > 40:
        return False
    text = body[begin:end]
    if text != _TOOLS:
        if b"\\" not in text:
            return False
        try:
            if orjson.loads(text) != "tools":
                return False
        except orjson.JSONDecodeError:
            return False
    at = _space(body, end)
    return body[at : at + 1] == b":"
