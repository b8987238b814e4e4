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

from gateway.hookcost.classification import Refusal
from gateway.hookcost.prompt import BYTES_PER_TOKEN

MAX_PARAMETER_BYTES = 256 * 1024
"""Parameters (grammars and tools with them) of more bytes in all make the request heavy by definition."""
_SLICE_BYTES = 1 << 20
_SLICE_TOKENS = 1_500
_REGEX_BYTES = 64 * 1024

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


class _BrokenError(Exception):
    """The body is no JSON object; the argument is the byte at which that shows."""


def skim(body: bytes, prompt_text: bool) -> Generator[None, None, Skimmed | Refusal]:
    """Scans a body; yields at least once a millisecond or so.

    prompt_text: the field `text` is prompt, as in SGLang's /generate, and no format, as in /v1/responses.
    """
    found = Skimmed()
    kept: dict[str, tuple[int, int]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    try:
        at = _space(body, 0)
        if body[at : at + 1] != b"{":
            raise _BrokenError(at)
        at = _space(body, at + 1)
        while body[at : at + 1] != b"}":
            key, at = yield from _key(body, at)
            value = _Value()
            yield from _scan(body, at, value, key == "messages")
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
    except _BrokenError as error:
        return _broken(error.args[0])
    found.prompt_bytes = sum(text_bytes for text_bytes, _ in sizes.values())
    found.batch = max([1, *(items for key, (_, items) in sizes.items() if key not in ("messages", "input", "system"))])
    total = sum(end - start for start, end in kept.values())
    if total > MAX_PARAMETER_BYTES:
        found.heavy = f"request parameters of more than {MAX_PARAMETER_BYTES // 1024} KiB"
        kept = {key: (start, end) for key, (start, end) in kept.items() if end - start <= _REGEX_BYTES // 8}
    for key, (start, end) in kept.items():
        try:
            found.data[key] = orjson.loads(body[start:end])
        except orjson.JSONDecodeError as error:
            return _broken(start + error.pos)
        if end - start > _REGEX_BYTES // 4:
            yield
    return found


def _broken(at: int) -> Refusal:
    return Refusal(400, "invalid_json", f"The request body is not a valid JSON object (byte {at}).")


def _space(body: bytes, at: int) -> int:
    match = _SPACE.match(body, at)
    return match.end() if match else at


def _key(body: bytes, at: int) -> Generator[None, None, tuple[str, int]]:
    if body[at : at + 1] != b'"':
        raise _BrokenError(at)
    end = yield from _string_end(body, at)
    try:
        key = orjson.loads(body[at:end]) if end - at <= _REGEX_BYTES else ""
    except orjson.JSONDecodeError:
        raise _BrokenError(at) from None
    at = _space(body, end)
    if body[at : at + 1] != b":":
        raise _BrokenError(at)
    return key, _space(body, at + 1)


def _string_end(body: bytes, at: int) -> Generator[None, None, int]:
    """The place behind the string that begins at `at`."""
    search = at + 1
    while True:
        found = body.find(b'"', search, search + _SLICE_BYTES)
        if found < 0:
            if search + _SLICE_BYTES >= len(body):
                raise _BrokenError(len(body))
            # What a slice leaves open is looked at again from its last characters on: an escape may straddle the cut.
            search += _SLICE_BYTES
            yield
            continue
        backslashes = found - 1
        while body[backslashes] == 0x5C and backslashes > at:
            backslashes -= 1
        if (found - 1 - backslashes) % 2 == 0:
            return found + 1
        search = found + 1


def _scan(body: bytes, at: int, value: _Value, messages: bool) -> Generator[None, None, None]:
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
    yield from _scan_container(body, at, value, messages)


def _scan_container(body: bytes, at: int, value: _Value, messages: bool) -> Generator[None, None, None]:
    depth = tokens = 0
    start = plain = at
    while True:
        tokens += 1
        if tokens % _SLICE_TOKENS == 0:
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
            plain += at - begin
            if messages and depth == 2 and _names_tools(body, begin, at):
                value.tools = True
        elif mark in b"{[":
            if depth == 1:
                value.items += 1
            depth += 1
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
